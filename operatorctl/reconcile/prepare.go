// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// preparation is what must exist before a cloud can be resolved.
type preparation struct {
	// finalizer is added before anything outside Kubernetes is created.
	finalizer bool
	// owners are the new managedFields of a cloud with defaults of the earlier operator; nil if there is nothing to adopt.
	owners []metav1.ManagedFieldsEntry
	// credentials are the values of the Secret of passwords; generate is true if it lacks any.
	credentials secrets.Values
	generate    bool
	// certificates is nil if they are known.
	certificates *secrets.Plan
	// err is the reason why nothing can be prepared.
	err error
}

func (p preparation) due() bool {
	return p.finalizer || p.owners != nil || p.generate || p.certificates != nil || p.err != nil
}

// planPreparation returns what is missing. It is pure.
func planPreparation(s State) preparation {
	p := preparation{finalizer: !controllerutil.ContainsFinalizer(s.Cloud, v1alpha1.Finalizer)}
	entries, changed, err := engine.Transfer(s.Cloud.ManagedFields, []string{v1alpha1.ManagerEarlier}, v1alpha1.ManagerDefaults,
		v1alpha1.GroupVersion.String(), adopt.Derived(&s.Cloud.Spec))
	if changed {
		p.owners = entries
	}
	p.err = err
	p.credentials = wantedCredentials(s)
	if missing := p.credentials.Missing(s.Secrets.credentials); len(missing) > 0 {
		p.generate = true
		if s.Secrets.record != nil || len(missing) > 1 || missing[0] != component.CloudID {
			if p.credentials.Earlier, err = earlierCredentials(s, s.Catalog, missing); err != nil {
				p.err = err
			}
		}
	}
	if !s.Secrets.issued {
		wanted := secrets.Wanted{
			Cluster: s.Cloud.Name, Namespace: s.Cloud.Namespace, Address: s.address(), Now: s.Now, Served: s.Last.served,
			Names: certificateNames(s),
		}
		plan, err := wanted.Plan(s.Secrets.certificates)
		if p.certificates = &plan; err != nil {
			p.err = err
		}
	}
	return p
}

// prepare performs a preparation. It returns the State with the results.
func (a actor) prepare(ctx context.Context, m *cloud, s State, p preparation) (State, error) {
	if p.finalizer {
		before := s.Cloud.DeepCopy()
		controllerutil.AddFinalizer(s.Cloud, v1alpha1.Finalizer)
		// A merge patch leaves the rest of the object, which may have fields that we do not know, untouched.
		if err := a.patchCloud(ctx, m, &s, kube.IfUnchanged(before), engine.FieldManager); err != nil {
			return s, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	if p.generate && p.err == nil {
		if err := a.generate(ctx, &s, p.credentials); err != nil {
			return s, err
		}
	}
	var err error
	if p.owners != nil {
		var patch client.Patch
		patch, err = engine.TransferPatch(p.owners, s.Cloud.ResourceVersion)
		if err == nil {
			err = a.patchCloud(ctx, m, &s, patch, v1alpha1.ManagerDefaults)
		}
		if err != nil {
			return s, fmt.Errorf("taking over the defaults in the spec: %w", err)
		}
		a.event(s.Cloud, normal(wholeCloud, ReasonAdopted, "took over the defaults that the earlier operator wrote into the spec"))
	}
	if p.err != nil || p.certificates == nil {
		return s, p.err
	}
	key := certificatesKey(s)
	if s.Secrets.current, err = p.certificates.Apply(); err != nil {
		return s, err
	}
	s.Secrets.issued = true
	m.memos.issued.drop()
	if key != "" && !p.certificates.Due() && s.Secrets.current.Status.Message == "" { // a rotation depends on pods
		m.memos.issued.keep(key, s.Secrets.current)
	}
	return s, nil
}

// patchCloud writes the cloud and continues with the response, but at the version decided on: that in the spec may wait for an operation.
func (a actor) patchCloud(ctx context.Context, m *cloud, s *State, patch client.Patch, owner string) error {
	cr := s.Cloud.DeepCopy()
	if err := a.client.Patch(ctx, cr, patch, client.FieldOwner(owner)); err != nil {
		return err
	}
	m.written = cr.DeepCopy()
	cr.Spec.Version = s.Cloud.Spec.Version
	s.Cloud = cr
	return nil
}

// generate writes missing passwords.
func (a actor) generate(ctx context.Context, s *State, v secrets.Values) error {
	meta := metav1.ObjectMeta{Name: secrets.CredentialsSecret(s.Cloud.Name), Namespace: s.Cloud.Namespace, Labels: labels(*s)}
	secret, missing, err := v.Apply(ctx, a.client, a.direct, meta, s.Secrets.credentials != nil)
	if err != nil {
		return err
	}
	s.Secrets.credentials = secret
	if len(missing) == 0 {
		return nil
	}
	a.logger.Info("wrote credentials", "cluster", s.Cloud.Name, "namespace", s.Cloud.Namespace, "secret", meta.Name, "taken over", len(v.Earlier))
	if len(v.Earlier) > 0 {
		a.event(s.Cloud, normal(wholeCloud, ReasonAdopted,
			"copied the passwords of the earlier operator to Secret %s; if you will not go back to the earlier operator, delete ConfigMap %s",
			meta.Name, s.Cloud.Name+"-"+adopt.ClusterConfig))
	}
	if lost := lostPasswords(s.Cloud, a.catalog, slices.DeleteFunc(missing, func(key string) bool { _, kept := v.Earlier[key]; return kept })); lost > 0 {
		a.event(s.Cloud, warning(wholeCloud, ReasonReplaced,
			"Secret %s had lost %s in use; databases, accounts and pods get new ones", meta.Name, lists.Counted(lost, "password")))
	}
	return nil
}

// lostPasswords counts missing passwords that were in use.
func lostPasswords(cr *v1alpha1.OnecloudCluster, all catalogue, missing []string) (lost int) {
	for _, c := range all.components {
		for effect, key := range map[string]string{
			"database/" + c.Name: component.DatabasePassword(c.Name), "account/" + c.Name: component.AccountPassword(c.Name),
			"clickhouse/" + c.Name: component.ClickHousePassword(c.Name),
		} {
			if cr.Status.Effects[effect] != "" && slices.Contains(missing, key) {
				lost++
			}
		}
	}
	return lost
}
