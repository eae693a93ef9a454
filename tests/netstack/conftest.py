from hypothesis import settings

# Wall-clock deadlines fail on busy machines and say nothing about the stack, whose clock is ours.
settings.register_profile("netstack", deadline=None)
settings.load_profile("netstack")
