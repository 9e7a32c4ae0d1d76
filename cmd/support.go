// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/cluster/why/support"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
)

func newSupport(a *app) *cobra.Command {
	f := &cloudFlags{}
	var file, rootfs string
	var recipients []string
	c := &cobra.Command{
		Use: "support", Short: "Collect logs and states for diagnosis on another machine",
		Long: "Writes a support bundle: the cloud, its operations, pods, events, volumes and nodes, the logs of all containers of the cloud and of the\n" +
			"components of Kubernetes, and, for every node that reports, its disks and the journals of the kubelet and containerd. As root on a\n" +
			"node, it also reads what only that node has: states of units, certificates, findings of \"ocadm node doctor\". As root on a node\n" +
			"without a kubeconfig, such as a worker, it collects that machine alone. \"ocadm why --from FILE\" finds causes in it on any machine. It\n" +
			"takes less than a minute and changes nothing.\n\n" +
			"The bundle holds no Secret. The values of the Secrets in the namespaces of the cloud and the operator, and everything that looks like a password\n" +
			"or a token, are removed from logs and objects. A value that is also a name, such as that of the namespace, is removed only where it looks\n" +
			"like a password. If your account cannot list these Secrets, the bundle has no logs. If the API server does not answer, only what looks\n" +
			"like a password is removed from the journals of the machine. The bundle holds names and addresses of your site: check it before you\n" +
			"send it. With --recipient only the owner of that age or SSH key can read it.",
		Example: "  ocadm support\n  ocadm support --file /tmp/support.tar.gz\n  ocadm support --recipient age1…\n\n  tar -tzf ocadm-support-*.tar.gz",
		RunE: func(c *cobra.Command, _ []string) error {
			keys, err := backup.Recipients(recipients...)
			if err != nil {
				return misused(err.Error(), "--recipient age1…, or an SSH public key")
			}
			s, _, err := a.snapshot(c.Context(), f, rootfs, true)
			if err != nil {
				return err
			}
			for _, m := range s.Missing {
				fmt.Fprintln(a.Err, "not read: "+m)
			}
			file = cmp.Or(file, support.Name(s, len(keys) > 0))
			if err := writeSupport(file, s, keys); err != nil {
				return finding.Errorf("OCA-7561", "The support bundle cannot be written", "choose another file: --file FILE", "%w", err)
			}
			if s.Refused != nil {
				fmt.Fprintln(a.Err, "The cluster could not be read: "+s.Refused.What)
			}
			_, err = fmt.Fprintln(a.Out, file)
			return err
		},
	}
	f.add(a, c, nil)
	c.Flags().StringVar(&file, "file", "", "file to write (default ocadm-support-NAME-TIME.tar.gz)")
	c.Flags().StringVar(&rootfs, "rootfs", "", "directory to use as the root of the machine")
	hide(c.Flags(), "rootfs")
	c.Flags().StringArrayVar(&recipients, "recipient", nil, "encrypt for this age or SSH public key; may be repeated")
	return c
}

// writeSupport writes a new file that only its owner can read.
func writeSupport(file string, s *why.Snapshot, keys []age.Recipient) (err error) {
	r, _ := why.Diagnose(s, "")
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	return support.Write(out, s, r, keys...)
}
