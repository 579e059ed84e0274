"""`holdfast top`: a live view of running processes, in a terminal.

asking.py gets what they tell, history.py makes rates of it, picture.py puts together what is shown, drawing.py makes
lines of it for a terminal's size, screen.py has the terminal, command.py runs it all.
"""
