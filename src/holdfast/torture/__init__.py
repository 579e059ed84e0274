"""`holdfast torture`: Holdfast's own processes under real faults, a history of what its clients saw, and a checker that
reads it. docs/torture.md tells what each fault does and what each check means.

Only this package knows of it: nothing else in Holdfast has a hook for tests. A part that is to be broken is started by
child.py, which changes what lies beneath the program (its disk, its clock) and then runs it as it is.
"""
