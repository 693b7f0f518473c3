"""From a bound graph to a schedule: tasks, candidates, and what the schedule is worth."""
