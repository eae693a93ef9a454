"""What manifests say and what follows from it: resources, admission rules, plans.

`manifests.load` reads YAML, `admission.review` judges it, `plan.make_plan` turns it into the
`ClusterView` the services see and one `PodPlan` per Pod. None of it touches the machine.
"""
