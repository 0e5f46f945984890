import os

from hypothesis import settings

# scikit-learn skips one of its checks without it; scipy reads it when it is first imported.
os.environ["SCIPY_ARRAY_API"] = "1"

# No test is timed: a busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
