// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// facts are what the checks judge.
type facts struct {
	cloud *v1alpha1.OnecloudCluster
	// update is what the operation changes, nil if it only checks.
	update *v1alpha1.UpdateParameters
	now    time.Time
	// server is what is known of the databases, nil for a cloud without.
	server *server
}

// server is what the checks know of the databases. Bytes that they take, and why they cannot be copied, nil if they can.
type server struct {
	bytes int64
	err   error
}

// judges are the checks, each a function of the facts.
func judges() []func(facts) finding.List {
	return []func(facts) finding.List{health, certificates, nodes, way, unsaved, databases}
}

// findingsOf gathers the facts and runs all checks.
func findingsOf(ctx context.Context, r *Run) finding.List {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return finding.List{finding.Errorf("OCA-7050", "The cloud cannot be read", "ocadm cluster status", "%w", err)}
	}
	f := facts{cloud: cloud, update: r.Operation.Spec.Update, now: time.Now(), server: r.server(ctx, cloud)}
	var out finding.List
	for _, judge := range judges() {
		out = append(out, judge(f)...)
	}
	return out
}

// server looks whether databases can be made beside those of the cloud, and how large they are.
func (r *Run) server(ctx context.Context, cloud *v1alpha1.OnecloudCluster) *server {
	v, there, err := r.openVault(ctx, cloud)
	if err != nil {
		return &server{err: err}
	}
	if !there {
		return nil
	}
	defer v.Admin.Close()
	out := &server{}
	names, err := r.databases(ctx, v, cloud)
	if err == nil {
		out.bytes, err = v.Admin.Size(ctx, names...)
	}
	if err == nil {
		err = v.Try(ctx)
	}
	out.err = err
	return out
}

// databases judges whether they can be copied.
func databases(f facts) finding.List {
	if f.server == nil || f.server.err == nil || f.update != nil && f.update.NoBackup {
		return nil
	}
	return finding.List{finding.Errorf("OCA-7063", "The databases cannot be copied", "give the administrator of the database server the rights that "+
		"docs/install.md lists, and make room on it", "%w", f.server.err)}
}

// unsaved judges an update without copies.
func unsaved(f facts) finding.List {
	switch {
	case f.update == nil || !f.update.NoBackup:
		return nil
	case f.update.AllowDowngrade || minorOf(f.cloud.Status.Release.Version) != minorOf(f.update.Version) && f.update.Version != "":
		return finding.List{finding.New("OCA-7064", "An update that changes tables needs copies of the databases",
			fmt.Sprintf("from %s to %s", f.cloud.Status.Release.Version, f.update.Version), "leave --no-backup out")}
	}
	return finding.List{finding.Warn("OCA-7065", "The databases are not copied", "--no-backup was given",
		"if the update fails, its services go back, and what they changed in the databases stays")}
}

// health finds the components that do not serve.
func health(f facts) (out finding.List) {
	var bad []string
	for _, c := range f.cloud.Status.Components {
		if !c.State.Settled() {
			bad = append(bad, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	one := finding.New("OCA-7051", "Components of the cloud are not available", strings.Join(bad, "; "), "ocadm cluster status; repair them first")
	one.Evidence = bad
	return finding.List{one}
}

// certificateMargin is how long certificates must be valid at least.
const certificateMargin = 24 * time.Hour

// certificates finds those that end during the operation, or have ended.
func certificates(f facts) (out finding.List) {
	c := f.cloud.Status.Certificates
	for what, end := range map[string]time.Time{"certificate of the services": c.NotAfter.Time, "CA": c.CANotAfter.Time} {
		if end.IsZero() || end.After(f.now.Add(certificateMargin)) {
			continue
		}
		out = append(out, finding.New("OCA-7052", "A certificate of the cloud ends too soon", fmt.Sprintf("the %s ends %s", what, end.UTC().Format(time.RFC3339)),
			"renew it; docs/operate.md, Certificates"))
	}
	return out
}

// nodes finds those of the cloud that are not Ready. The others can be updated without them.
func nodes(f facts) finding.List {
	c := meta.FindStatusCondition(f.cloud.Status.Conditions, v1alpha1.ConditionNodesReady)
	if c == nil || c.Status == "True" {
		return nil
	}
	one := finding.New("OCA-7053", "Nodes of the cloud are not Ready", c.Message, "kubectl get nodes; the others are updated without them")
	one.Severity = finding.Warning
	return finding.List{one}
}

// way judges the way from the version in force to the one that is asked for.
func way(f facts) finding.List {
	if f.update == nil || f.update.Version == "" {
		return nil
	}
	return path(f.cloud.Status.Release.Version, f.update.Version, f.update.AllowDowngrade)
}
