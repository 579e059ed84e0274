"""Push delivery: each push subscription's messages go to its endpoint by HTTP POST, and the answer settles them.

delivery.py shares the work out, sender.py serves one subscription, request.py builds what is sent, answers.py says what
an answer means, pace.py how fast an endpoint may be asked.
"""
