"""What happened: records, the log that orders them, its codec and its digest. Floor 0: imports nothing of isim."""
