"""How people hear of alerts: receivers, what is told to each, and what keeps it from getting lost."""
