# Before removal, but not before an upgrade.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now fleet-echo.service || :; fi
