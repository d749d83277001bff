# After installation and upgrade: nothing is enabled or started.
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
