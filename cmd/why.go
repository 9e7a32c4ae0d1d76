// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/cluster/why/gather"
	"yunion.io/x/ocadm/cluster/why/support"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/doctor"
	"yunion.io/x/ocadm/phases/host"
	nodekube "yunion.io/x/ocadm/phases/kubernetes"
)

type whyFlags struct {
	cloudFlags
	from, identity string
	rootfs         string
	list, fix, yes bool
}

func newWhy(a *app) *cobra.Command {
	f := &whyFlags{}
	c := &cobra.Command{
		Use: "why [COMPONENT|NODE]", Short: "Find the cause of a problem",
		Long: "Reads the cloud, its pods, their events and logs, the nodes, the volumes and, as root on a node, the kubelet and containerd of this\n" +
			"machine. As root on a control-plane node, it uses the API server there if the endpoint of the cluster does not answer. As root on a node\n" +
			"without a kubeconfig, such as a worker, it examines only that machine, and reports this. It prints the cause that explains the symptom, with\n" +
			"the evidence and the next command, and then the other problems. Without an argument, the symptom is the whole cloud. The argument is a\n" +
			"component, a node, or control-plane, database, dns, identity or operator.\n\n" +
			"--from reads a support bundle instead, on any machine. --fix offers repairs, each with the equivalent kubectl command, asks before each,\n" +
			"and checks again that it is still needed. Forget a pod of a lost node only if that machine is off: if it is only cut off, the pod\n" +
			"continues there, and a second one runs beside it. --yes does not ask, and then forgets pods of a node, or uncordons a node, only if you\n" +
			"name that node. Without --fix, nothing is changed.\n\n" +
			"The exit status is 0 if nothing is wrong or only warnings were found, 73 if no cause is known, and otherwise that of the cause's code.",
		Example: "  ocadm why\n  ocadm why region\n  ocadm why node2 -o json\n\n  # on another machine\n  ocadm why --from ocadm-support.tar.gz\n\n" +
			"  # what it can recognise\n  ocadm why --list",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: componentNames,
		RunE: func(c *cobra.Command, args []string) error {
			if f.list {
				return a.printCauses(f.output)
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return a.why(c.Context(), f, name)
		},
	}
	f.add(a, c, nil, "text", "json", "yaml")
	fs := c.Flags()
	fs.StringVar(&f.from, "from", "", "read a support bundle instead of the cluster")
	fs.StringVar(&f.identity, "identity-file", "", "secret key of an encrypted support bundle, as age-keygen writes it")
	fs.StringVar(&f.rootfs, "rootfs", "", "directory to use as the root of the machine")
	hide(fs, "rootfs")
	fs.BoolVar(&f.list, "list", false, "list the causes that can be recognised")
	fs.BoolVar(&f.fix, "fix", false, "offer repairs, and ask before each")
	fs.BoolVar(&f.yes, "yes", false, "with --fix: do not ask; skips repairs that concern a node unless that NODE is given")
	c.MarkFlagsMutuallyExclusive("from", "fix", "list")
	return c
}

func (a *app) why(ctx context.Context, f *whyFlags, name string) error {
	s, k, err := a.seen(ctx, f)
	if err != nil {
		return err
	}
	r, ok := why.Diagnose(s, name)
	if !ok {
		if s.Refused != nil { // nothing is known by name; the refusal is the answer
			r, _ = why.Diagnose(s, "")
		} else {
			return misspelt(fmt.Sprintf("%q is neither a component nor a node", name), name, s.Names(), "ocadm cluster status; kubectl get nodes")
		}
	}
	if err := a.print(f.output, r, func(p *page) { printReport(a.redact.Writer(p), r) }); err != nil {
		return err
	}
	fixed := false
	if f.fix {
		if fixed, err = a.fix(ctx, f, k, r); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && !fixed {
		return &shownError{err}
	}
	return nil
}

// seen returns the snapshot to analyze: that of a support bundle, or a new one.
func (a *app) seen(ctx context.Context, f *whyFlags) (*why.Snapshot, client.Client, error) {
	if f.from != "" {
		s, err := readSupport(f.from, f.identity)
		return s, nil, err
	}
	return a.snapshot(ctx, &f.cloudFlags, f.rootfs, false)
}

func readSupport(file, identity string) (*why.Snapshot, error) {
	unreadable := func(err error, remedy string) error {
		return finding.Errorf("OCA-7560", "The support bundle cannot be read", remedy, "%w", err)
	}
	var identities []age.Identity
	if identity != "" {
		raw, err := os.ReadFile(identity)
		if err == nil {
			identities, err = backup.Identities(raw)
		}
		if err != nil {
			return nil, unreadable(err, "give the file that age-keygen wrote, or an SSH private key: --identity-file FILE")
		}
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, unreadable(err, "name the file that ocadm support wrote: --from FILE")
	}
	defer in.Close()
	s, err := support.Read(in, identities...)
	if errors.Is(err, support.ErrEncrypted) {
		return nil, unreadable(err, "give its secret key: --identity-file FILE")
	}
	if err != nil {
		return nil, unreadable(err, "copy it again, or create another one: ocadm support")
	}
	return s, nil
}

// kubeletTimeout bounds a request to a kubelet.
const kubeletTimeout = 10 * time.Second

// snapshotTimeout bounds the reading. Removing the secrets from the most that is read, finding causes and writing take 15 s more (gather.logsBytes):
// together less than the minute that the help of support promises.
const snapshotTimeout = 40 * time.Second

// snapshot reads the cluster and, as root on a node, this machine. It also returns a snapshot if the cluster does not answer.
func (a *app) snapshot(ctx context.Context, f *cloudFlags, rootfs string, everything bool) (*why.Snapshot, client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	host, _ := os.Hostname() // "" is fine
	o := gather.Options{Cloud: f.key(), Everything: everything, Now: time.Now(), Program: version.Version, Host: host}
	h, _ := thisMachine(ctx, rootfs) // nil for users other than root
	if h != nil {
		o.Machines, o.Disks = lookAt(ctx, h)
	}
	cfg, err := f.config("reads the whole cluster, and logs")
	none := func(f finding.Finding) bool { return slices.Contains(why.NotAsked, f.Code) }
	if len(o.Machines) > 0 && f.kubeconfig == "" && slices.ContainsFunc(finding.Of(err), none) {
		return gather.Refuse(o, err), nil, nil // a worker has none, and only its machine shows why its kubelet is down
	}
	if err != nil {
		return nil, nil, err
	}
	if h != nil {
		nearest, why := nodekube.NearestAPI(ctx, h, cfg)
		if why != "" {
			cfg, o.Silent = nearest, why
			a.sayNearest(why)
		}
	}
	k, err := kube.New(cfg)
	if err != nil {
		return gather.Refuse(o, err), nil, nil
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for logs: %w", err)
	}
	o.Log = readLogs(c)
	kubelet := func(ctx context.Context, node, path string, query ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
		defer cancel()
		request := c.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + node + "/proxy/" + path) // Suffix would remove a trailing slash
		for i := 0; i+1 < len(query); i += 2 {
			request = request.Param(query[i], query[i+1])
		}
		return request.DoRaw(ctx)
	}
	o.Kubelet = func(ctx context.Context, node, path string) ([]byte, error) { return kubelet(ctx, node, path) }
	o.Journal = func(ctx context.Context, node, unit string) ([]byte, error) {
		return kubelet(ctx, node, "logs/", "query", unit, "tailLines", doctor.JournalLines)
	}
	return gather.Snapshot(ctx, k, o), k, nil
}

// config reads the kubeconfig for a command that cannot use the REST API; what explains why it cannot.
func (f *cloudFlags) config(what string) (*rest.Config, error) {
	file, err := f.file(what)
	if err != nil {
		return nil, err
	}
	return kube.Config(file)
}

// thisMachine returns the node that the command runs on. Only root may inspect it.
func thisMachine(ctx context.Context, rootfs string) (*host.Host, error) {
	cfg := &config.Config{}
	cfg.Run.DryRun = true
	return newHost(ctx, cfg, rootfs)
}

// machineTimeout bounds the inspection of this machine: if its systemd hangs, there must be time left to query the cluster.
const machineTimeout = 20 * time.Second

func lookAt(ctx context.Context, h *host.Host) ([]why.Machine, []why.Disk) {
	ctx, cancel := context.WithTimeout(ctx, machineTimeout)
	defer cancel()
	m, disks, ok := doctor.Machine(ctx, h)
	if !ok {
		return nil, nil
	}
	return []why.Machine{m}, disks
}
