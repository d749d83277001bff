# After an upgrade: restarts the service if it runs. After removal: the folders of the package, unless they
# hold changed settings or other files.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -eq 0 ] || systemctl try-restart fleet-echo.service || :
fi
if [ "$1" -eq 0 ]; then rmdir /usr/lib/fleet-echo /etc/fleet-echo /usr/share/doc/fleet-echo 2>/dev/null || :; fi
