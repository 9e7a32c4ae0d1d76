// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/rotation"
)

// The etcd prefixes of the objects that a restore reads.
const (
	registry   = "/registry/"
	clouds     = registry + "onecloud.yunion.io/onecloudclusters/"
	operations = registry + "onecloud.yunion.io/onecloudoperations/"
	leases     = registry + "leases/"
	jobs       = registry + "jobs/"
	pods       = registry + "pods/"
)

// Cloud is a cloud as stored in etcd.
type Cloud struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Version and Release are those that run.
	Version string `json:"version,omitempty"`
	Release int    `json:"release,omitempty"`
	// Database is the address of the database server.
	Database string `json:"database,omitempty"`
}

func (c Cloud) String() string {
	return fmt.Sprintf("version %s, release %d", cmp.Or(c.Version, "unknown"), c.Release)
}

// contents are the cloud-related contents of an etcd.
type contents struct {
	clouds map[string]Cloud // by namespace and name
	// operations holds the unfinished operations, by key.
	operations map[string]v1alpha1.OnecloudOperation
	// records name the primary of each embedded database with a replica, by namespace.
	records map[string]dbpair.Record
	// unreadable lists keys that cannot be read: they are encrypted, or written by a later ocadm.
	unreadable []string
}

// cloudObject is the part of a cloud that a restore reads. An old cloud with a field of another type must not prevent the restore.
type cloudObject struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Version string `json:"version"`
		MySQL   struct {
			Host string `json:"host"`
			Port int    `json:"port"`
		} `json:"mysql"`
	} `json:"spec"`
	Status struct {
		Version string                 `json:"version"`
		Release v1alpha1.ReleaseStatus `json:"release"`
	} `json:"status"`
}

// contentsOf reads the contents from values by key.
func contentsOf(values map[string][]byte) contents {
	out := contents{clouds: map[string]Cloud{}, operations: map[string]v1alpha1.OnecloudOperation{}, records: map[string]dbpair.Record{}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := out.add(key, values[key]); err != nil {
			out.unreadable = append(out.unreadable, fmt.Sprintf("%s: %v", key, err))
		}
	}
	return out
}

func (c *contents) add(key string, raw []byte) error {
	switch {
	case strings.HasPrefix(key, clouds):
		var o cloudObject
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		one := Cloud{Namespace: o.Namespace, Name: o.Name, Release: o.Status.Release.Revision, Version: cmp.Or(o.Status.Release.Version, o.Status.Version, o.Spec.Version)}
		if at := o.Spec.MySQL; at.Host != "" {
			one.Database = net.JoinHostPort(at.Host, strconv.Itoa(cmp.Or(at.Port, 3306)))
		}
		c.clouds[one.Namespace+"/"+one.Name] = one
	case strings.HasPrefix(key, operations):
		var o v1alpha1.OnecloudOperation
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		if !o.Status.Phase.Final() {
			c.operations[key] = o
		}
	case isRecord(key):
		l, err := leaseOf(raw)
		if err != nil {
			return err
		}
		c.records[l.Namespace] = dbpair.ReadRecord(l)
	}
	return nil
}

// isRecord reports whether a key is that of a Lease that records the primary of a database.
func isRecord(key string) bool {
	return strings.HasPrefix(key, leases) && path.Base(key) == dbpair.RecordName
}

func leaseOf(raw []byte) (*coordinationv1.Lease, error) {
	o, err := decode(raw)
	if err != nil {
		return nil, err
	}
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("it is a %T", o)
	}
	return l, nil
}

// protobufPrefix starts the values that the API server stores as protobuf. All others are JSON.
var protobufPrefix = []byte("k8s\x00")

// deserializer is created once, because a cluster has one Lease per node.
var deserializer = sync.OnceValue(func() runtime.Decoder { return serializer.NewCodecFactory(kube.Scheme()).UniversalDeserializer() })

func decode(raw []byte) (runtime.Object, error) {
	o, _, err := deserializer().Decode(raw, nil, nil)
	return o, err
}

// encode encodes an object in the format in which it was stored.
func encode(o runtime.Object, stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, protobufPrefix) {
		return json.Marshal(o)
	}
	scheme := kube.Scheme()
	var out bytes.Buffer
	err := protobuf.NewSerializer(scheme, scheme).Encode(o, &out)
	return out.Bytes(), err
}

// looked returns the prefixes of the keys that a restore reads.
func looked() []string { return []string{clouds, operations, leases, rotation.StoredAt} }

// entriesOf reads them from a running etcd.
func entriesOf(ctx context.Context, c *etcd.Client) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, prefix := range looked() {
		entries, err := c.Entries(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			values[e.Key] = e.Value
		}
	}
	return values, nil
}
