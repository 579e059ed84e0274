"""Every metric there is, in one table, and where a scrape gets their values from.

Nothing is counted here. A part of the process keeps plain counters of its own and registers a source, which is asked
only when somebody scrapes. How the values are written for Prometheus is api/http/metrics.py's business.
"""
