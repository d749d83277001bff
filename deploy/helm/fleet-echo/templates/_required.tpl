{{- /*
Fails with the commands that create what the pods mount and what does not exist. Takes the namespaces of Echo and of
the agents. Only `install`, `upgrade` and `--dry-run=server` see the cluster; `helm template` finds nothing missing.
*/ -}}
{{- define "fleet-echo.required" }}
{{- $echo := index . 0 }}
{{- $agent := index . 1 }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $commands := list }}
{{- range list (list $echo "restricted") (list $agent "privileged") }}
{{- $namespace := index . 0 }}
{{- if not (lookup "v1" "Namespace" "" $namespace) }}
{{- $commands = append $commands (printf "kubectl create namespace %s" $namespace) }}
{{- $commands = append $commands (printf "kubectl label namespace %s pod-security.kubernetes.io/enforce=%s" $namespace (index . 1)) }}
{{- end }}
{{- end }}
{{- if not (lookup "v1" "Secret" $echo "fleet-echo-tls") }}
{{- $commands = append $commands (printf "kubectl -n %s create secret generic fleet-echo-tls --from-file=tls.crt --from-file=tls.key --from-file=ca.crt" $echo) }}
{{- end }}
{{- if not (lookup "v1" "ConfigMap" $agent "fleet-echo-ca") }}
{{- $commands = append $commands (printf "kubectl -n %s create configmap fleet-echo-ca --from-file=ca.crt" $agent) }}
{{- end }}
{{- if not (lookup "v1" "Secret" $agent "fleet-agent-metrics") }}
{{- $commands = append $commands (printf "kubectl -n %s create secret generic fleet-agent-metrics --from-literal=token=\"$(openssl rand -hex 32)\"" $agent) }}
{{- end }}
{{- if $commands }}
{{- fail (printf "\n\nPods would wait for objects that do not exist. Create them first:\n\n  %s\n\nThe certificate is for fleet-echo.%s.svc. If something else creates them later, set requireSecrets=false.\n" (join "\n  " $commands) $echo) }}
{{- end }}
{{- end }}
{{- end }}
