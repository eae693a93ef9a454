"""What was sent, what arrived, what was lost: scoreboard, RACK-TLP, PRR."""
