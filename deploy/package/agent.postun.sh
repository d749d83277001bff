# After an upgrade: restarts the service if it runs.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -eq 0 ] || systemctl try-restart fleet-agent.service || :
fi
