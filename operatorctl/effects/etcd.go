// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

const etcdName = "etcd"

// lostEtcd returns the pods of etcd whose last log lines show that a member's disk is empty.
func lostEtcd(in Input) []string {
	return lists.Filter(slices.Sorted(maps.Keys(in.LastWords[etcdName])), func(pod string) bool { return etcd.LostDisk(in.LastWords[etcdName][pod]) })
}

// emptyEtcd reports whether all members have no data and look for a cluster to join: there is none, so they must form one.
func emptyEtcd(in Input) bool {
	members := in.Cluster.Components[etcdName].Replicas
	for i := range members {
		if !etcd.FoundNone(in.LastWords[etcdName][fmt.Sprintf("%s-%d", in.Cluster.Object(etcdName), i)]) {
			return false
		}
	}
	return members > 0 && in.State[etcdName] != nil
}

// etcdWanted makes the maintenance due when a member has lost its disk, until its successor has joined, and when no member has data.
func etcdWanted(in Input) map[string]any {
	out := map[string]any{"lost": lostEtcd(in), "joining": in.State[etcdName]}
	if emptyEtcd(in) {
		out["empty"] = true
	}
	return out
}

// etcdNeeds lets the maintenance start when all members serve, or when they need it in order to serve.
func etcdNeeds(in Input) []string {
	if len(lostEtcd(in)) > 0 || in.State[etcdName] != nil {
		return nil
	}
	return []string{etcdName}
}

// keepEtcd replaces members that have lost their disks, makes room in full databases, and frees the space of deleted keys.
func keepEtcd(ctx context.Context, cl Clients, in Input) (bool, error) {
	lost := lostEtcd(in)
	if size := int(in.Cluster.Components[etcdName].Replicas); size > 1 && 2*(size-len(lost)) <= size {
		return false, errors.Join(cl.SetState(ctx, etcdName, nil), fmt.Errorf("%d of %d members have lost their disks, which leaves no majority: "+
			"restart them with empty disks, which loses the leases and caches: kubectl -n %s delete --wait=false pvc,pod -l %s=%s,%s=%s", len(lost), size,
			in.Cluster.Namespace, v1alpha1.LabelComponent, etcdName, v1alpha1.LabelInstance, in.Cluster.Instance))
	}
	changed, err := tendEtcd(ctx, cl, in, lost)
	if etcd.IsUnavailable(err) && emptyEtcd(in) {
		return true, cl.SetState(ctx, etcdName, nil)
	}
	if len(lost) == 0 && etcd.IsUnavailable(err) {
		return changed, nil // its probes report this, and the audit retries when it is back
	}
	return changed, err
}

func tendEtcd(ctx context.Context, cl Clients, in Input, lost []string) (bool, error) {
	c, err := openEtcd(ctx, cl, in)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if err := rejoinEtcd(ctx, cl, c, in, lost); err != nil {
		return false, err
	}
	lifted, err := liftEtcd(ctx, cl, c)
	if err != nil {
		return lifted, err
	}
	freed, _, err := c.Defragment(ctx) // a later pass handles what this one skipped
	if freed > 0 {
		cl.Notify(Notice{Component: etcdName, Reason: "EtcdDefragmented", Text: fmt.Sprintf("defragmenting etcd freed %d MiB", freed>>20)})
	}
	return lifted || freed > 0, err
}

func etcdTLS(in Input) (*tls.Config, error) {
	cert, roots := in.ClientCertificate, x509.NewCertPool()
	pair, err := tls.X509KeyPair([]byte(cert.PEM), []byte(cert.KeyPEM))
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate of etcd: %w", err)
	}
	roots.AppendCertsFromPEM([]byte(cert.CAPEM))
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

func openEtcd(ctx context.Context, cl Clients, in Input) (*etcd.Client, error) {
	tlsConfig, err := etcdTLS(in)
	if err != nil {
		return nil, err
	}
	config := etcd.Config{Dial: cl.Dial, TLS: tlsConfig}
	for i := range in.Cluster.Components[etcdName].Replicas {
		url := "https://" + in.Cluster.PodHost(etcdName, i)
		config.Members = append(config.Members, etcd.Member{
			Name: fmt.Sprintf("%s-%d", in.Cluster.Object(etcdName), i), ClientURL: url + ":2379", PeerURL: url + ":2380",
		})
	}
	return etcd.Open(ctx, config)
}

// rejoinEtcd returns Waiting until all members have started. Pods read the state when their container starts; members with data ignore it.
func rejoinEtcd(ctx context.Context, cl Clients, c *etcd.Client, in Input, lost []string) error {
	for _, pod := range lost {
		replaced, err := c.Replace(ctx, pod, func(ctx context.Context) error {
			return cl.SetState(ctx, etcdName, map[string]string{component.EtcdInitialState: "existing"})
		})
		if replaced {
			cl.Notify(Notice{Component: etcdName, Warning: true, Reason: "EtcdMemberReplaced", Text: fmt.Sprintf(
				"etcd member %s lost its disk: it was removed and added again, and joins at the next start of its container. If it does not join, "+
					"give it an empty volume: kubectl -n %s delete --wait=false pvc/data-%s pod/%s", pod, in.Cluster.Namespace, pod, pod)})
		}
		if err != nil {
			return err
		}
	}
	if len(lost) == 0 && in.State[etcdName] == nil {
		return nil
	}
	joining, err := c.Joining(ctx)
	if err != nil {
		return err
	}
	if len(joining) > 0 {
		return Waiting{For: strings.Join(joining, ", ") + " to join", Retry: 5 * time.Second}
	}
	return cl.SetState(ctx, etcdName, nil)
}

func liftEtcd(ctx context.Context, cl Clients, c *etcd.Client) (bool, error) {
	lifted, err := c.LiftNoSpace(ctx)
	if len(lifted.Members) == 0 {
		return false, err
	}
	cl.Notify(Notice{Component: etcdName, Warning: true, Reason: "EtcdNoSpace", Text: fmt.Sprintf(
		"etcd was full and rejected writes: dropping old revisions and defragmenting left %d MiB of %d MiB, and the alarm of %s was cleared",
		lifted.After>>20, lifted.Before>>20, strings.Join(lifted.Members, ", "))})
	if err == nil && lifted.After > lifted.Before*3/4 {
		err = fmt.Errorf("etcd is nearly full: %d MiB are in use; raise spec.etcd.etcdBackendQuotaSize (in MiB)", lifted.After>>20)
	}
	return true, err
}
