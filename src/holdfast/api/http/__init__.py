"""HTTP: the push endpoint and the JSON API. Each module gives its routes; the app joins them."""
