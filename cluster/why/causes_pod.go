// SPDX-License-Identifier: Apache-2.0

package why

import (
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/finding"
)

const (
	pullState = `(?:ErrImagePull|ImagePullBackOff|Failed to pull image|Failed: Failed to pull).*`
	// notReadyAge is how long a container may run before it is ready: services first migrate their databases.
	notReadyAge = 10 * time.Minute
)

func imageCauses() []Cause {
	const next = "kubectl -n ${namespace} describe pod ${pod} | grep -A3 Failed"
	return []Cause{
		{ID: "image-not-found", Code: "OCA-2102", Layer: Image, Title: "An image does not exist", What: "The image ${image} of pod ${pod} does not exist",
			Why:  "its registry does not have this name or tag, and neither does the depot",
			Next: "ocadm component update ${component} --follow removes a wrong tag; otherwise: " + next,
			Says: regexp.MustCompile(pullState + `(not found|manifest unknown|NotFound)`), In: State | Event},
		{ID: "image-denied", Code: "OCA-2103", Layer: Image, Title: "A registry refuses an image", What: "The registry refuses the image ${image} of pod ${pod}",
			Why:  "it requires credentials, or other ones",
			Next: "kubectl -n ${namespace} get secrets; set spec.imagePullSecrets: docs/online.md, Credentials",
			Says: regexp.MustCompile(pullState + `(unauthorized|denied|forbidden|authentication required|\b40[13]\b)`), In: State | Event},
		{ID: "registry-certificate", Code: "OCA-2101", Layer: Image, Title: "The certificate of a registry is not accepted",
			What: "The registry of ${image} has a certificate that node ${node} does not accept", Why: "its CA is unknown on the node, or the certificate has expired",
			Next: "on ${node}: put ca.crt and hosts.toml below /etc/containerd/certs.d/HOST",
			Says: regexp.MustCompile(pullState + `(x509: |tls: |http: server gave HTTP response)`), In: State | Event},
		{ID: "registry-limit", Code: "OCA-2104", Layer: Image, Title: "A registry limits its downloads", What: "The registry of ${image} has received too many requests",
			Why:  "it limits downloads without an account",
			Next: "wait, use credentials, or a mirror: docs/online.md", Says: regexp.MustCompile(pullState + `(toomanyrequests|Too Many Requests|\b429\b|\b50[234]\b)`),
			In: State | Event},
		{ID: "registry-unreachable", Code: "OCA-2101", Layer: Image, Title: "A registry cannot be reached", What: "Node ${node} cannot reach the registry of ${image}",
			Why:  "DNS, a proxy or a firewall is in the way, or the site has no internet access",
			Next: "on ${node}: ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d ${image}; offline, on a control-plane node: ocadm init phase depot --bundle FILE",
			Says: regexp.MustCompile(pullState + `(dial tcp|i/o timeout|no such host|connection refused|Client\.Timeout|deadline exceeded|network is unreachable)`),
			In:   State | Event},
		{ID: "image-name", Code: "OCA-2501", Layer: Setting, Title: "The name of an image is invalid", What: "${image} of pod ${pod} is not an image name",
			Why:  "repository, name or tag contains a character that is not allowed",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o yaml | grep -nE 'image|tag|repository'", Says: regexp.MustCompile(`InvalidImageName: `), In: State},
		{ID: "image-never", Code: "OCA-2502", Layer: Image, Title: "An image is not on its node and may not be pulled", What: "The image ${image} is not on node ${node}",
			Why:  "its pull policy is Never, and the kubelet may have removed it for space",
			Next: "on ${node}, with the flags of its roles: ocadm join phase images --bundle FILE --as-onecloud-controller", Says: regexp.MustCompile(`ErrImageNeverPull: `), In: State},
		{ID: "image-platform", Code: "OCA-2503", Layer: Image, Title: "An image is for another processor",
			What: "The image ${image} is not for the processor of node ${node}", Why: "it was built for another architecture",
			Next: "use an image for several architectures; kubectl get nodes -L kubernetes.io/arch", Says: regexp.MustCompile(`exec format error|no match for platform`),
			In: State | Event | LogLine},
	}
}

func schedulingCauses() []Cause {
	unschedulable := func(id, title, what, why, next, says string) Cause {
		return Cause{ID: id, Code: "OCA-7501", Layer: Setting, Title: title, What: what, Why: why, Next: next, In: State | Message | Event,
			Says: regexp.MustCompile(`(Unschedulable|FailedScheduling|PodsNotRunning|nodes are available|Pod was rejected).*` + says)}
	}
	return []Cause{
		unschedulable("no-node-label", "No node has the role that a pod needs", "No node has the role that ${pod} needs", "the label of the role is missing",
			"kubectl get nodes --show-labels; ocadm node enable-onecloud-controller NODE", `(didn't match Pod's node affinity/selector|didn't match node selector)`),
		unschedulable("no-cpu", "The nodes have no processors left for a pod", "No node has processors left for ${pod}", "the requests of the pods add up to what the nodes have",
			"kubectl describe nodes | grep -A8 'Allocated'; add a node, lower requests, or set spec.disableResourceManagement: true", `(Insufficient|resource:) cpu`),
		unschedulable("no-memory", "The nodes have no memory left for a pod", "No node has memory left for ${pod}", "the requests of the pods add up to what the nodes have",
			"kubectl describe nodes | grep -A8 'Allocated'; add a node, lower requests, or set spec.disableResourceManagement: true", `(Insufficient|resource:) (memory|ephemeral-storage)`),
		unschedulable("too-many-pods", "The nodes accept no more pods", "The nodes accept no more pods", "each kubelet runs at most 110 pods, unless maxPods differs",
			"add a node, or raise maxPods in /var/lib/kubelet/config.yaml", `(Too many pods|resource: pods)`),
		unschedulable("port-taken", "The ports of a pod are taken on every node", "The ports of ${pod} are taken on every node",
			"two pods need the same port of one node, such as 80 or 443",
			"kubectl get pods -A -o wide | grep -E 'traefik|ingress|web'", `didn't have free ports`),
		unschedulable("volume-elsewhere", "A volume is on a node that a pod cannot use", "The volume of ${pod} is on a node that cannot be used",
			"a local volume binds its pod to a node, which is lost, cordoned or full",
			"kubectl get nodes; kubectl get pv -o wide", `(volume node affinity conflict|didn't match PersistentVolume's node affinity)`),
		{ID: "claim-unbound", Code: "OCA-7501", Layer: Symptom, Title: "A pod waits for a volume", What: "${pod} waits for a volume", Why: "its claim is not bound",
			Next: "kubectl -n ${namespace} get pvc",
			Says: regexp.MustCompile(`unbound immediate PersistentVolumeClaims|persistentvolumeclaim "[^"]+" not found`), In: State | Message | Event},
		unschedulable("all-cordoned", "The nodes that a pod could use are cordoned", "The nodes that ${pod} could use are cordoned",
			"kubectl cordon or drain was not undone", "kubectl get nodes; kubectl uncordon ${cordoned}", `(were unschedulable|node\.kubernetes\.io/unschedulable)`),
		unschedulable("tainted", "Taints keep a pod off the nodes", "Taints keep ${pod} off the nodes", "a taint that the pod does not tolerate",
			"kubectl describe nodes | grep Taints; kubectl taint node ${tainted} ${taint}-", `untolerated taint`),
		unschedulable("spread", "A pod cannot run beside its copy", "${pod} cannot run beside its copy",
			"copies of a service run on different nodes, and too few nodes have the role", "add a controller node, or spec.profile: small",
			`(anti-affinity rules|topology spread)`),
	}
}

var programMissing = regexp.MustCompile(`executable file not found|exec: "[^"]+": (stat .*: )?no such file or directory`)

func containerCauses() []Cause {
	const logs = "kubectl -n ${namespace} logs ${pod} -c ${container} --previous"
	return []Cause{
		{ID: "out-of-memory", Code: "OCA-7510", Layer: Setting, Title: "A container was killed for lack of memory",
			What: "Container ${container} of pod ${pod} was killed for lack of memory", Why: "it needs more than its limit, or the node has none left",
			Next: "raise limits.memory in the block of ${component}; kubectl describe node ${node} | tail", Says: regexp.MustCompile(`OOMKilled`), In: State},
		{ID: "missing-object", Code: "OCA-7511", Layer: Setting, Title: "A Secret or ConfigMap of a pod is missing",
			What: "The ${kind} ${object} of pod ${pod} is missing", Why: "it was deleted, or never created; the operator recreates its own",
			Next: "kubectl -n ${namespace} get secrets,configmaps; ocadm why operator", Says: missingObject, In: State | Event},
		{ID: "missing-key", Code: "OCA-7511", Layer: Setting, Title: "A Secret or ConfigMap of a pod lacks a key", What: "Pod ${pod} needs the key ${key}, which is missing",
			Why:  "the Secret or ConfigMap was edited; the operator restores its own",
			Next: "kubectl -n ${namespace} describe pod ${pod}; ocadm why operator", Says: missingKey, In: State | Event},
		{ID: "missing-directory", Code: "OCA-7121", Layer: Setting, Title: "A directory of the node is missing", What: "The directory ${path} is missing on node ${node}",
			Why:  "the pod mounts it and waits until it exists",
			Next: "on ${node}: ocadm join phase compute --enable-host-agent; or: mkdir -p ${path}", Says: hostPath, In: Event},
		{ID: "program-missing", Code: "OCA-7512", Layer: Setting, Title: "An image lacks the program to run", What: "The image of pod ${pod} lacks the program to run",
			Why:  "the image does not belong to the component, or the command is wrong",
			Next: "kubectl -n ${namespace} get pod ${pod} -o jsonpath='{..image}{..command}'; ocadm component update ${component} --follow",
			Says: programMissing, In: State | Event | LogLine},
		{ID: "runtime-refused", Code: "OCA-7509", Layer: Container, Title: "The container runtime did not start a container",
			What: "The container runtime did not start container ${container} of pod ${pod}",
			Why:  "node ${node} is overloaded, lacks memory, processes or disk space, or its kernel refuses a setting of the container",
			Next: "on ${node}: journalctl -u containerd -n 50; free -m; df -h; uptime",
			Says: regexp.MustCompile(`OCI runtime create failed|failed to create (containerd|shim) task`), In: State | Event | LogLine,
			Of: func(_ *facts, t Text) bool { return !programMissing.MatchString(t.Line) }},
		{ID: "probe-failed", Code: "OCA-7513", Layer: Container, Title: "A container was killed because it did not answer its probe",
			What: "Container ${container} of pod ${pod} was killed because it did not answer", Why: "it hangs, waits for another service, or needs longer to start",
			Next: logs, Says: regexp.MustCompile(`(?i)failed (liveness|startup) probe|Unhealthy: (Liveness|Startup) probe failed`), In: Event},
		{ID: "port-in-use", Code: "OCA-7514", Layer: Setting, Title: "A port is in use on the node", What: "A port of pod ${pod} is in use on node ${node}",
			Why:  "another program or pod listens there",
			Next: "on ${node}: ss -ltnp", Says: regexp.MustCompile(`bind: address already in use`), In: LogLine},
		{ID: "option-unknown", Code: "OCA-7515", Layer: Setting, Title: "A service does not accept its configuration",
			What: "${component} does not accept its configuration", Why: "an option is unknown to its release, or has a value of the wrong type",
			Next: "ocadm component options list ${component}; ocadm component options unset ${component} OPTION",
			Says: regexp.MustCompile(`Unknown optional argument|unknown option|setStructFieldAt|cannot unmarshal|yaml: (line|unmarshal)|parse (config|options)`),
			In:   LogLine},
		{ID: "file-missing", Code: "OCA-7515", Layer: Setting, Title: "A service does not find a file", What: "${container} does not find a file",
			Why:  "a path in its options is wrong, or a Secret lacks a key",
			Next: logs, Says: regexp.MustCompile(`(?i)(open|stat|read|load) (?P<path>/[^ :]+): no such file or directory`), In: LogLine, Of: func(_ *facts, t Text) bool {
				return !regexp.MustCompile(`serviceaccount|subnet\.env`).MatchString(t.Line)
			}},
		{ID: "api-token-missing", Code: "OCA-7516", Layer: Setting, Title: "A service has no access to Kubernetes", What: "${component} has no access to Kubernetes",
			Why:  "its pod has no token of a service account",
			Next: "kubectl -n ${namespace} get serviceaccounts; if one is missing, " + finding.InstallOperator + "; then: ocadm component restart ${component}",
			Says: regexp.MustCompile(`serviceaccount/token: no such file|serviceaccount .* not found`), In: LogLine | Event},
		{ID: "service-refused", Code: "OCA-7517", Layer: Container, Title: "Another service refuses a connection", What: "Pod ${pod} cannot connect to ${address}",
			Why: "nothing listens there yet", Next: "kubectl get svc,endpointslices -A | grep -wF ${host}; " + logs,
			Says: regexp.MustCompile(`dial tcp (?P<address>\[?(?P<host>[^ \]]+)\]?:\d+): connect: connection refused`), In: LogLine,
			Of: func(f *facts, t Text) bool { return ofService(t) && !f.toDatabase(t.Line) }},
		{ID: "panic", Code: "OCA-7518", Layer: Container, Title: "A service has crashed", What: "Container ${container} of pod ${pod} has crashed",
			Why:  "a defect of the program: its log ends with a panic",
			Next: logs + "; go back: ocadm cluster rollback", Says: regexp.MustCompile(`^panic: |runtime error: |SIGSEGV|\[signal `), In: LogLine},
		{ID: "crash-loop", Code: "OCA-7519", Layer: Symptom, Title: "A container keeps restarting", What: "Container ${container} of pod ${pod} keeps restarting",
			Why: "its log gives the reason", Next: logs,
			Says: regexp.MustCompile(`CrashLoopBackOff|^ended with status`), In: State},
		{ID: "never-ready", Code: "OCA-7513", Layer: Symptom, Title: "A pod runs but does not become ready", What: "Pod ${pod} runs but does not become ready",
			Why:  "its readiness probe fails",
			Next: "kubectl -n ${namespace} describe pod ${pod}; kubectl -n ${namespace} logs ${pod}", When: func(f *facts) []Hit {
				return f.podsWhere(func(p *corev1.Pod) string {
					if !f.unwell(p) || p.Status.Phase != corev1.PodRunning || f.nodeSilent(p.Spec.NodeName) {
						return ""
					}
					for _, c := range p.Status.ContainerStatuses {
						if c.State.Running != nil && !c.Ready && f.Time.Sub(c.State.Running.StartedAt.Time) > notReadyAge {
							return "container " + c.Name + " has been running since " + c.State.Running.StartedAt.UTC().Format(time.RFC3339) + " and is not ready"
						}
					}
					return ""
				})
			}},
	}
}
