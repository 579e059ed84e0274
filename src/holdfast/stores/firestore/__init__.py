"""Documents in Google's Firestore. Needs the extra `holdfast[firestore]`; import it only when it is asked for."""
