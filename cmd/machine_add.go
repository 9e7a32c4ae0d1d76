// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ssh"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/phases/config"
)

type machineFlags struct {
	file, address, user, hostKey, secret string
	key, passphraseFile                  string
	passwordFile, sudoPasswordFile       string
	port                                 int32
	roles, labels, hostNetworks          []string
	paused, callback, dryRun             bool
}

func newMachineAdd(a *app) *cobra.Command {
	var f cloudFlags
	var m machineFlags
	c := &cobra.Command{
		Use: "add [NAME]", Short: "Add a machine, or the machines in a file",
		Long: "Creates OnecloudMachines, which the operator then joins. With NAME, flags describe the machine, and its credentials are stored in Secret\n" +
			"NAME-login. With --callback, nothing logs in to the machine: it boots with its bootstrap data. With -f, a file of OnecloudMachines\n" +
			"describes them; if one of them is wrong, none is added. Existing machines do not change.",
		Example: "  ocadm machine add worker-1 --address 192.0.2.21 --key ~/.ssh/id_ed25519 --roles compute --wait\n" +
			"  ocadm machine add worker-2 --address 192.0.2.22 --user debian --password-file /root/pw --host-key SHA256:...\n  ocadm machine add -f machines.yaml\n\n" +
			"  # it boots by itself with the printed user data\n  ocadm machine add worker-3 --callback\n  ocadm machine bootstrap-data worker-3 >user-data",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if (len(args) == 1) == (m.file != "") {
				return misused("give either NAME and --address, or -f FILE", "ocadm machine add worker-1 --address 192.0.2.21 --key FILE")
			}
			all, data, err := m.machines(a, &f, args)
			if err == nil && m.dryRun {
				_, err = f.file("creates objects in a dry run")
			}
			if err != nil {
				return err
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				if err := m.create(ctx, a, k, &f, all, data); err != nil || !f.wait {
					return err
				}
				for i := range all {
					if err := a.untilRunning(ctx, k, client.ObjectKeyFromObject(&all[i])); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, "wait until the machines run")
	m.add(c)
	c.MarkFlagsMutuallyExclusive("dry-run", "wait")
	return c
}

func (m *machineFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVarP(&m.file, "file", "f", "", "file with OnecloudMachines; - is standard input")
	fs.StringVar(&m.address, "address", "", "name or IP address of the machine")
	fs.Int32Var(&m.port, "port", 22, "port of SSH") //nolint:mnd // the port of SSH
	fs.StringVar(&m.user, "user", "root", "login user; users other than root use sudo")
	fs.StringVar(&m.key, "key", "", "file with the private key of the user")
	fs.StringVar(&m.passphraseFile, "passphrase-file", "", "file with the passphrase of the private key")
	fs.StringVar(&m.passwordFile, "password-file", "", "file with the password of the user")
	fs.StringVar(&m.sudoPasswordFile, "sudo-password-file", "", "file with the password that sudo asks for, if it differs")
	fs.StringVar(&m.secret, "secret", "", "existing Secret with the credentials, instead of files")
	fs.StringVar(&m.hostKey, "host-key", "", "key that the machine must present, TYPE BASE64 or SHA256:... (default: the key of the first contact is pinned)")
	fs.StringSliceVar(&m.roles, "roles", nil, "what the machine does: compute, controller, controlplane, baremetal, lbagent")
	fs.StringSliceVar(&m.labels, "labels", nil, "additional labels of its Node, key=value")
	fs.StringSliceVar(&m.hostNetworks, "host-networks", nil, "networks of virtual machines, NIC/BRIDGE/ADDRESS, as for join")
	fs.BoolVar(&m.callback, "callback", false, "nothing logs in to the machine: it boots with its bootstrap data and calls in")
	fs.BoolVar(&m.dryRun, "dry-run", false, "have the API server check the machines, and add none")
	fs.BoolVar(&m.paused, "paused", false, "do not join it before ocadm machine resume")
	for _, login := range []string{"address", "port", "user", "key", "passphrase-file", "password-file", "sudo-password-file", "secret", "host-key"} {
		c.MarkFlagsMutuallyExclusive("file", "callback", login) // the file has it, or nothing logs in to the machine
	}
	for _, name := range []string{"roles", "labels", "host-networks"} {
		c.MarkFlagsMutuallyExclusive("file", name)
	}
}

// machines returns the machines in the file, or the one in the flags with the content of its Secret.
func (m *machineFlags) machines(a *app, f *cloudFlags, args []string) ([]cluster.Machine, map[string][]byte, error) {
	if m.file != "" {
		all, err := readMachines(a, m.file, f)
		for i := range all {
			if m.paused {
				pause(&all[i])
			}
		}
		return all, nil, err
	}
	one, err := m.machine(f, args[0])
	if err != nil {
		return nil, nil, err
	}
	if m.callback {
		one.Spec.Infrastructure.Callback = &v1alpha1.MachineCallback{}
		return []cluster.Machine{one}, nil, nil
	}
	if m.address == "" {
		return nil, nil, misused("--address is missing", "ocadm machine add "+args[0]+" --address 192.0.2.21 --key FILE")
	}
	data, err := m.credentials()
	if err != nil {
		return nil, nil, err
	}
	if (len(data) == 0) == (m.secret == "") {
		return nil, nil, misused("give either --key or --password-file, or --secret", "ocadm machine add "+args[0]+" --address "+m.address+" --key FILE")
	}
	login := v1alpha1.MachineLogin{Address: m.address, Port: m.port, User: m.user, HostKey: m.hostKey, CredentialsSecretName: m.secret}
	if m.secret == "" {
		login.CredentialsSecretName = args[0] + "-login"
		t := ssh.Target{Address: m.address, Port: int(m.port), User: m.user, Credentials: machinectl.Credentials(data)}
		if err := t.CheckCredentials(); err != nil {
			return nil, nil, err
		}
	}
	one.Spec.Infrastructure.SSH.MachineLogin = login
	return []cluster.Machine{one}, data, nil
}

// credentials returns the content of the files with credentials, as in a Secret.
func (m *machineFlags) credentials() (map[string][]byte, error) {
	data := map[string][]byte{}
	for key, file := range map[string]string{
		v1alpha1.SecretKeyPrivate: m.key, v1alpha1.SecretKeyPassphrase: m.passphraseFile,
		v1alpha1.SecretKeyPassword: m.passwordFile, v1alpha1.SecretKeySudoPassword: m.sudoPasswordFile,
	} {
		if file == "" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, finding.Errorf("OCA-7611", "The credentials of the machine cannot be read", "give a file that exists", "%w", err)
		}
		data[key] = content
	}
	return data, nil
}

// machine returns what the flags say about a machine, apart from its access.
func (m *machineFlags) machine(f *cloudFlags, name string) (cluster.Machine, error) {
	var err error
	labels, errs := config.Labels(m.labels)
	if len(errs) > 0 {
		err = misused("--labels: "+strings.Join(lists.Map(errs, error.Error), "; "), "correct --labels: key=value, each key once")
	}
	one := cluster.Machine{}
	one.APIVersion, one.Kind, one.Namespace, one.Name = v1alpha1.GroupVersion.String(), v1alpha1.MachineKind, f.namespace, name
	if m.paused {
		pause(&one)
	}
	one.Spec = v1alpha1.OnecloudMachineSpec{Cloud: f.name, Labels: labels, HostNetworks: m.hostNetworks}
	one.Spec.Roles = lists.Map(m.roles, func(r string) v1alpha1.MachineRole { return v1alpha1.MachineRole(r) })
	return one, err
}

func readMachines(a *app, file string, f *cloudFlags) ([]cluster.Machine, error) {
	data, err := a.read(file)
	if err != nil {
		return nil, finding.Errorf("OCA-7611", "The machines in "+file+" cannot be read", "give a file that exists", "%w", err)
	}
	return cluster.ReadMachines(file, data, f.namespace, f.name)
}

// pause keeps a new machine from joining.
func pause(m *cluster.Machine) {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPaused, "true")
}

// create creates the machines, and a Secret with the credentials of a new one if there is data for it.
func (m *machineFlags) create(ctx context.Context, a *app, k client.Client, f *cloudFlags, all []cluster.Machine, data map[string][]byte) error {
	var login func() error
	suffix := ""
	if m.dryRun {
		k, data, suffix = client.NewDryRunClient(k), nil, " (server dry run)"
	}
	if len(data) > 0 {
		login = func() error {
			return cluster.PutSecret(ctx, k, f.named(all[0].Spec.Infrastructure.SSH.CredentialsSecretName), data)
		}
	}
	var results []outcome
	err := cluster.AddMachines(ctx, k, all, login, func(name, action string) {
		results = append(results, f.outcome(action+suffix).of("Machine", name))
	})
	if err != nil {
		return err
	}
	return a.print(f.output, results, func(p *page) {
		for _, r := range results {
			printOutcome(p, r)
		}
	})
}

// untilRunning waits until a machine runs. It returns a finding if the machine needs attention.
func (a *app) untilRunning(ctx context.Context, k client.WithWatch, key client.ObjectKey) error {
	end := func(p v1alpha1.MachinePhase) bool { return p == v1alpha1.MachineRunning || p == v1alpha1.MachineFailed }
	last, err := cluster.WaitMachine(ctx, k, key, end, func(why string) { fmt.Fprintf(a.Err, "%s: %s\n", key.Name, why) })
	switch {
	case err != nil:
		return finding.Errorf("OCA-7612", "Machine "+key.Name+" does not run yet", "ocadm machine get "+key.Name+"; it continues by itself", "%w", err)
	case last.Status.Phase == v1alpha1.MachineFailed:
		return finding.New("OCA-7614", "Machine "+key.Name+" did not join", last.Status.FailureMessage, "correct the cause, then: ocadm machine retry "+key.Name)
	}
	return nil
}
