// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/require"
)

var now = time.Unix(1_800_000_000, 0)

// ready returns the facts of a machine that can join.
func ready(change ...func(*facts)) facts {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w", UID: "m", Generation: 1}}
	m.Spec.Cloud, m.Spec.Roles = "default", []v1alpha1.MachineRole{v1alpha1.RoleCompute}
	f := facts{machine: m, cloud: &v1alpha1.OnecloudCluster{}, data: true, now: now}
	for _, c := range change {
		c(&f)
	}
	return f
}

// tried adds a last operation that ended at the given step.
func tried(action string, phase v1alpha1.OperationPhase, step, code string, attempts int, ago time.Duration) func(*facts) {
	return func(f *facts) {
		o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: prefixes[action] + "-w-1"}}
		o.Spec.Action, o.Spec.Machine = action, &v1alpha1.MachineParameters{Name: "w"}
		o.Status.Phase, o.Status.End = phase, metav1.NewTime(now.Add(-ago))
		for _, name := range []string{stepConnect, stepPrecheck, stepJoin} {
			state := v1alpha1.StepDone
			if name == step {
				state = v1alpha1.StepFailed
			}
			o.Status.Steps = append(o.Status.Steps, v1alpha1.OperationStep{Name: name, State: state})
			if name == step {
				break
			}
		}
		if code != "" {
			o.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-0001", Warning: true}, {Code: code, What: "it is so", Remedy: "do this"}}
		}
		f.operations = append(f.operations, o)
		f.machine.Status.Operation, f.machine.Status.Tries, f.machine.Status.Attempts = o.Name, 1, attempts
		f.machine.Status.Retry = wanted(f.machine)
	}
}

func deleted(f *facts) { f.machine.DeletionTimestamp = new(metav1.NewTime(now)) }

func held(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"} }

// handedOver makes it a machine that ocadm fleet joined: the operator has never logged in to it.
func handedOver(f *facts) { f.machine.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"} }

func reached(f *facts) { f.machine.Status.HostKey = "k" }

func givenUp(f *facts) {
	f.machine.Annotations = map[string]string{v1alpha1.AnnotationAbandonMachine: "true"}
}

// of sets the clouds that own a machine. Its cloud is c.
func of(uids ...types.UID) func(*facts) {
	return func(f *facts) {
		f.cloud.UID = "c"
		for _, uid := range uids {
			f.machine.OwnerReferences = append(f.machine.OwnerReferences, operation.OwnerOf(&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: uid}}))
		}
	}
}

func node(uid string, is corev1.ConditionStatus) func(*facts) {
	return func(f *facts) {
		f.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "n", Labels: map[string]string{v1alpha1.LabelMachine: uid}}}
		f.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is, Message: "it is so"}}
	}
}

func TestDecide(t *testing.T) {
	const join, remove = v1alpha1.ActionJoinMachine, v1alpha1.ActionRemoveMachine
	for name, c := range map[string]struct {
		facts   facts
		phase   v1alpha1.MachinePhase
		reason  string
		create  string
		release bool
		again   time.Duration
	}{
		"it joins":                    {facts: ready(), phase: "Provisioning", create: "join-w-1"},
		"no cloud":                    {facts: ready(func(f *facts) { f.cloud = nil }), phase: "Pending"},
		"no data":                     {facts: ready(func(f *facts) { f.data = false }), phase: "Pending"},
		"paused":                      {facts: ready(held), phase: "Pending"},
		"duplicate":                   {facts: ready(func(f *facts) { f.twin = "other" }), phase: "Failed", reason: "DuplicateAddress"},
		"a node of others":            {facts: ready(node("other", "True")), phase: "Failed", reason: "NodeExists"},
		"a node before its label":     {facts: ready(node("other", "True"), held), phase: "Pending"},
		"it runs":                     {facts: ready(node("m", "True")), phase: "Running"},
		"its node is not ready":       {facts: ready(node("m", "False")), phase: "Provisioned"},
		"its node was deleted":        {facts: ready(func(f *facts) { f.machine.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"} }), phase: "Failed", reason: "NodeDeleted"},
		"joined, and no node yet":     {facts: ready(tried(join, "Succeeded", "", "", 1, 0)), phase: "Provisioned"},
		"unreachable":                 {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 1, 10*time.Second)), phase: "Pending", again: 20 * time.Second},
		"unreachable for long":        {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 99, time.Minute)), phase: "Pending", again: 9 * time.Minute},
		"unreachable, it is time":     {facts: ready(tried(join, "Failed", stepConnect, "OCA-7601", 1, 31*time.Second)), phase: "Provisioning", create: "join-w-2"},
		"wrong key":                   {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, time.Hour)), phase: "Failed", reason: "OCA-7603"},
		"a Secret of the cloud":       {facts: ready(tried(join, "Failed", "", "OCA-7628", 1, time.Hour)), phase: "Failed", reason: "OCA-7628"},
		"a check fails":               {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-1004", 1, time.Hour)), phase: "Failed", reason: "OCA-1004"},
		"broken off in the checks":    {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-7605", 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"its token is refused":        {facts: ready(tried(join, "Failed", stepPrecheck, codeTokenRefused, 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"join fails":                  {facts: ready(tried(join, "Failed", stepJoin, "OCA-4001", 4, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"join fails too often":        {facts: ready(tried(join, "Failed", stepJoin, "OCA-4001", 5, time.Hour)), phase: "Failed", reason: "OCA-4001"},
		"cancelled":                   {facts: ready(tried(join, "Cancelled", stepJoin, "", 1, time.Hour)), phase: "Failed", reason: "Cancelled"},
		"wrong key, corrected":        {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, 0), func(f *facts) { f.machine.Generation++ }), phase: "Provisioning", create: "join-w-2"},
		"wrong key, retried":          {facts: ready(tried(join, "Failed", stepConnect, "OCA-7603", 1, 0), func(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationRetry: "x"} }), phase: "Provisioning", create: "join-w-2"},
		"removed, never reached":      {facts: ready(deleted), phase: "Deleted", release: true},
		"removed":                     {facts: ready(deleted, reached), phase: "Deleting", create: "remove-w-1"},
		"its name is taken":           {facts: ready(func(f *facts) { f.namesake = "other/w" }), phase: "Failed", reason: "DuplicateName"},
		"corrected, never reached":    {facts: ready(deleted, reached, at("b", 0), func(f *facts) { f.machine.Status.HostKeyAddress = "a:22" }), phase: "Deleted", release: true},
		"corrected, join has begun":   {facts: ready(deleted, at("b", 0), func(f *facts) { f.machine.Status.JoinBegun = "a:22" }), phase: "Deleting", create: "remove-w-1"},
		"removed with a former cloud": {facts: ready(deleted, reached, of("former")), phase: "Deleting", release: true},
		"removed from its own cloud":  {facts: ready(deleted, reached, of("former", "c")), phase: "Deleting", create: "remove-w-1"},
		"removed with its cloud":      {facts: ready(deleted, reached, func(f *facts) { f.cloud = nil }), phase: "Deleting", release: true},
		"removed, node by itself":     {facts: ready(deleted, node("m", "True")), phase: "Deleting", create: "remove-w-1"},
		"the only control plane":      {facts: ready(deleted, node("m", "True"), func(f *facts) { f.only = true }), phase: "Deleting", reason: "OCA-4141", again: lastRetry},
		"handed over, its node goes":  {facts: ready(deleted, handedOver, tried(remove, "Running", "", "", 1, 0)), phase: "Deleting"},
		"handed over, its node went":  {facts: ready(deleted, handedOver), phase: "Deleting", create: "remove-w-1"},
		"handed over, reset":          {facts: ready(deleted, handedOver, tried(remove, "Succeeded", "", "", 1, 0)), phase: "Deleted", release: true},
		"removal done":                {facts: ready(deleted, reached, tried(remove, "Succeeded", "", "", 1, 0)), phase: "Deleted", release: true},
		"removal of one that is gone": {facts: ready(deleted, reached, tried(remove, "Failed", stepReset, "OCA-7601", 2, 0)), phase: "Deleting", again: time.Minute},
		"removal needs a person":      {facts: ready(deleted, reached, tried(remove, "Failed", stepReset, "OCA-7603", 1, time.Hour)), phase: "Deleting", reason: "OCA-7603"},
		"removal, join runs":          {facts: ready(deleted, reached, tried(join, "Running", "", "", 1, 0)), phase: "Deleting"},
		"no endpoint":                 {facts: ready(withoutData("OCA_4130", "OCA-4130: the cluster has no endpoint")), phase: "Failed", reason: "OCA-4130"},
		"authorities not stored":      {facts: ready(withoutData("NotMade", "waiting for Job j")), phase: "Pending"},
		"the authorities are gone":    {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-4131", 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"its join runs":               {facts: ready(node("m", "True"), tried(join, "Running", "", "", 1, 0)), phase: "Provisioning"},
		"its join succeeded":          {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour), tried(join, "Succeeded", "", "", 1, 0)), phase: "Running"},
		"its join fails":              {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, 10*time.Second)), phase: "Pending", again: 20 * time.Second},
		"its join fails, it is time":  {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"its join fails too often":    {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 5, time.Hour)), phase: "Failed", reason: "OCA-5001"},
		"its join fails, no data":     {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour), func(f *facts) { f.data = false }), phase: "Pending"},
		"its join fails, paused":      {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour), held), phase: "Pending"},
		"its join fails, cloud gone":  {facts: ready(node("m", "True"), tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour), func(f *facts) { f.cloud = nil }), phase: "Running"},
		"its join fails, node gone":   {facts: ready(handedOver, tried(join, "Failed", stepJoin, "OCA-5001", 1, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"joined, node gone":           {facts: ready(handedOver, tried(join, "Succeeded", "", "", 1, 0)), phase: "Failed", reason: "NodeDeleted"},
		"node gone unseen, retried":   {facts: ready(tried(join, "Succeeded", "", "", 1, time.Hour), func(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationRetry: "x"} }), phase: "Provisioning", create: "join-w-2"},
		"joined, its spec changes":    {facts: ready(tried(join, "Succeeded", "", "", 1, time.Hour), func(f *facts) { f.machine.Generation++ }), phase: "Provisioned"},
		"pods lost in the checks":     {facts: ready(tried(join, "Failed", stepPrecheck, "OCA-7624", 9, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"checks take too long":        {facts: ready(tried(join, "Failed", stepPrecheck, "", 9, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"no download":                 {facts: ready(tried(join, "Failed", stepPrecheck, codeNoResult, 4, time.Hour)), phase: "Provisioning", create: "join-w-2"},
		"no download, too often":      {facts: ready(tried(join, "Failed", stepPrecheck, codeNoResult, 5, time.Hour)), phase: "Failed", reason: codeNoResult},
		"called for":                  {facts: ready(callsIn("", 0)), phase: "Pending"},
		"called in":                   {facts: ready(callsIn(callin.Called, 1)), phase: "Provisioning"},
		"joins after its call":        {facts: ready(callsIn(callin.Joining, 1)), phase: "Provisioning"},
		"joined after its call":       {facts: ready(callsIn(callin.Joined, 1)), phase: "Provisioned"},
		"fails after its call":        {facts: ready(callsIn(callin.Failed, 9)), phase: "Provisioning"},
		"fails for good":              {facts: ready(callsIn(callin.Failed, 10)), phase: "Failed", reason: "OCA-2001"},
		"fails without ocadm":         {facts: ready(callsIn(callin.Failed, 10), func(f *facts) { f.report.Findings = nil }), phase: "Failed", reason: "OCA-7607"},
		"called in, data expired":     {facts: ready(callsIn(callin.Joining, 1), func(f *facts) { f.data = false }), phase: "Provisioning"},
		"runs after its call":         {facts: ready(callsIn(callin.Joined, 1), node("m", "True")), phase: "Running"},
		"removed, never called":       {facts: ready(callsIn("", 0), deleted), phase: "Deleted", release: true},
		"removed while it joins":      {facts: ready(callsIn(callin.Joining, 1), deleted), phase: "Deleting", again: lastRetry},
		"removed when it called":      {facts: ready(callsIn(callin.Called, 1), deleted), phase: "Deleting", again: lastRetry},
		"removed before its Node":     {facts: ready(callsIn(callin.Joined, 1), deleted), phase: "Deleting", again: lastRetry},
		"removed between its tries":   {facts: ready(callsIn(callin.Failed, 9), deleted), phase: "Deleting", again: lastRetry},
		"removed, its token expired":  {facts: ready(callsIn(callin.Called, 1), deleted, func(f *facts) { f.data = false }), phase: "Deleted", release: true},
		"removed when it gave up":     {facts: ready(callsIn(callin.Failed, 10), deleted), phase: "Deleted", release: true},
		"abandoned while it joins":    {facts: ready(callsIn(callin.Called, 1), deleted, givenUp), phase: "Deleted", release: true},
		"removed after its call":      {facts: ready(callsIn(callin.Joined, 1), deleted, node("m", "True")), phase: "Deleting", create: "remove-w-1"},
		"removal after its call": {facts: ready(callsIn(callin.Joining, 1), deleted, func(f *facts) { f.machine.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"} }),
			phase: "Deleted", release: true},
		"not reset yet": {facts: ready(callsIn(callin.Joined, 1), deleted, node("m", "True"), tried(remove, "Failed", stepReset, codeNotReset, 1, time.Hour)), phase: "Deleting"},
		"reset": {facts: ready(callsIn(callin.Joined, 1), deleted, node("m", "False"), tried(remove, "Failed", stepReset, codeNotReset, 1, 0), func(f *facts) { f.left = true }),
			phase: "Deleting", create: "remove-w-2"},
		"at another node":             {facts: ready(deleted, reached, tried(remove, "Failed", stepReset, codeOtherNode, 1, time.Hour)), phase: "Deleting", reason: codeOtherNode},
		"removal after a failed join": {facts: ready(deleted, reached, at("a", 0), func(f *facts) { f.machine.Status.JoinBegun = "a:22" }, tried(join, "Failed", stepJoin, "OCA-4001", 1, 0)), phase: "Deleting", create: "remove-w-2"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.facts.machine.DeepCopy()
			d := decide(c.facts)
			create := ""
			if d.create != nil {
				create = d.create.Name
			}
			if d.status.Phase != c.phase || d.status.FailureReason != c.reason || create != c.create || d.release != c.release || d.again != c.again {
				t.Errorf("%s, reason %q, creates %q, release %t, again %s: %s", d.status.Phase, d.status.FailureReason, create, d.release, d.again, d.status.Message)
			}
			if (d.cancel != nil) != (name == "removal, join runs") {
				t.Errorf("cancels %v", d.cancel)
			}
			if c.reason != "" && d.status.FailureMessage == "" || c.phase == "Pending" && d.status.Message == "" {
				t.Errorf("it does not say why: %+v", d.status)
			}
			if !equality.Semantic.DeepEqual(before, c.facts.machine) {
				t.Error("decide changed its facts")
			}
		})
	}
}

// withoutData makes it a machine whose data could not be created.
func withoutData(reason, message string) func(*facts) {
	return func(f *facts) {
		f.data = false
		f.machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionBootstrapDataReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
}

// The operations on a control-plane node are marked as such.
func TestControlPlaneOperations(t *testing.T) {
	for _, f := range []facts{ready(), ready(deleted, reached)} {
		f.machine.Spec.Roles = []v1alpha1.MachineRole{v1alpha1.RoleControlPlane}
		if d := decide(f); d.create == nil || !d.create.Spec.Machine.ControlPlane {
			t.Errorf("%+v", d.create)
		}
	}
}

// A kubeadm key decrypts what was encrypted with it, and no other key does.
func TestFits(t *testing.T) {
	raw := bytes.Repeat([]byte{7}, keySize)
	block, err := aes.NewCipher(raw)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, gcm.NonceSize())
	text := gcm.Seal(nonce, nonce, []byte("authority"), nil)
	key := hex.EncodeToString(raw)
	other := hex.EncodeToString(bytes.Repeat([]byte{8}, keySize))
	for name, got := range map[string]bool{"it": !fits(text, key), "another key": fits(text, other), "no key": fits(text, ""), "no text": fits(nil, key), "a short text": fits(text[:14], key)} {
		if got {
			t.Errorf("%s: %t", name, !got)
		}
	}
}

// callsIn makes it a machine that boots by itself and has reported.
func callsIn(state callin.State, try int) func(*facts) {
	return func(f *facts) {
		f.machine.Spec.Infrastructure.Callback = &v1alpha1.MachineCallback{}
		f.report = callin.Report{State: state, Try: try, Phase: "preflight", Exit: 20}
		if state == callin.Failed {
			f.report.Findings = finding.List{finding.New("OCA-2001", "Port 10250 is taken", "by socat", "stop it")}
		}
	}
}

// A client makes a request by the annotation, and finds its result there.
func TestRequests(t *testing.T) {
	const creating, prechecking, deleting = v1alpha1.RequestCreating, v1alpha1.RequestChecking, v1alpha1.RequestDeleting
	asks := func(word string) func(*facts) {
		return func(f *facts) { f.machine.Annotations = map[string]string{v1alpha1.AnnotationOperation: word} }
	}
	// going sets a request in the status.
	going := func(word string) func(*facts) {
		return func(f *facts) {
			if f.machine.Annotations == nil {
				asks(word)(f)
			}
			f.machine.Status.Request = &v1alpha1.MachineRequest{Operation: word, Time: metav1.NewTime(now.Add(-time.Minute))}
		}
	}
	checked := func(phase v1alpha1.OperationPhase) func(*facts) {
		return func(f *facts) {
			tried(v1alpha1.ActionPrecheckMachine, phase, "", "", 1, 0)(f)
			f.operations[0].Name, f.machine.Status.Request.Name = "check-w-1", "check-w-1"
		}
	}
	paused := func(f *facts) { f.machine.Annotations[v1alpha1.AnnotationPaused] = "true" }
	failed := tried(v1alpha1.ActionJoinMachine, "Failed", stepPrecheck, "OCA-1004", 1, time.Hour)
	removal := tried(v1alpha1.ActionRemoveMachine, "Failed", stepReset, "OCA-7603", 1, time.Hour)
	for name, c := range map[string]struct {
		facts            facts
		create, annotate string
		delete           bool
	}{
		"new":                        {facts: ready(asks(creating))},
		"another annotation":         {facts: ready(asks("Update")), create: "join-w-1"},
		"an answer":                  {facts: ready(asks("create-finished")), create: "join-w-1"},
		"creating":                   {facts: ready(going(creating)), create: "join-w-1"},
		"creating a paused one":      {facts: ready(going(creating), paused), create: "join-w-1"},
		"created":                    {facts: ready(going(creating), node("m", "True")), annotate: "create-finished"},
		"creation failed":            {facts: ready(going(creating), failed), annotate: "create-failed"},
		"prechecking":                {facts: ready(going(prechecking), paused), create: "check-w-1"},
		"prechecking, without data":  {facts: ready(going(prechecking), func(f *facts) { f.data = false })},
		"precheck runs":              {facts: ready(going(prechecking), paused, checked("Running"))},
		"prechecked":                 {facts: ready(going(prechecking), paused, checked("Succeeded")), annotate: "precheck-finished"},
		"precheck failed":            {facts: ready(going(prechecking), paused, checked("Failed")), annotate: "precheck-failed"},
		"deleting":                   {facts: ready(going(deleting), node("m", "True")), delete: true},
		"deletion runs":              {facts: ready(going(deleting), deleted, reached), create: "remove-w-1"},
		"deleted":                    {facts: ready(going(deleting), deleted), annotate: "delete-finished"},
		"deletion needs a person":    {facts: ready(going(deleting), deleted, reached, removal), annotate: "delete-failed"},
		"creating one that is going": {facts: ready(going(creating), deleted, reached), create: "remove-w-1", annotate: "create-failed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(c.facts)
			create := ""
			if d.create != nil {
				create = d.create.Name
			}
			if create != c.create || d.annotate != c.annotate || d.delete != c.delete {
				t.Errorf("creates %q, annotates %q, deletes %t: %+v", create, d.annotate, d.delete, d.status.Request)
			}
			if r := d.status.Request; c.annotate != "" && (r.Result != c.annotate || strings.HasSuffix(c.annotate, notFinished) && r.Message == "") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A second request is tried again although it comes within the second in which the first failed.
func TestRequestAfterOneThatFailed(t *testing.T) {
	f := ready(tried(v1alpha1.ActionJoinMachine, "Failed", stepPrecheck, "OCA-1004", 1, 0))
	f.machine.Annotations = map[string]string{v1alpha1.AnnotationOperation: v1alpha1.RequestCreating, v1alpha1.AnnotationPaused: "true"}
	f.machine.Status.Request = &v1alpha1.MachineRequest{Operation: v1alpha1.RequestCreating, Time: metav1.NewTime(f.now), Result: "create-failed", Name: f.machine.Status.Operation}
	noted := decide(f)
	if noted.create != nil || noted.annotate != "" || noted.status.Request.Result != "" {
		t.Fatalf("%+v", noted)
	}
	f.machine.Status = noted.status
	if d := decide(f); d.create == nil || d.create.Name != "join-w-2" || d.annotate != "" {
		t.Errorf("%+v", d)
	}
}

func TestAgents(t *testing.T) {
	pod := func(component string, is corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component, Labels: map[string]string{v1alpha1.LabelComponent: component}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}}
	}
	evicted := pod("region", "False") // its Deployment keeps it as a record
	evicted.Status.Phase, evicted.Status.Reason = corev1.PodFailed, "Evicted"
	for want, pods := range map[string][]corev1.Pod{
		"NoHostAgent": nil, "PodsNotReady": {pod("host", "True"), pod("sdnagent", "False")}, "Ready": {pod("host", "True"), pod("sdnagent", "True"), evicted},
	} {
		f := ready(node("m", "True"), func(f *facts) { f.agents = pods })
		if c := meta.FindStatusCondition(decide(f).status.Conditions, v1alpha1.ConditionAgentsReady); c == nil || c.Reason != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	const join = v1alpha1.ActionJoinMachine
	for name, c := range map[string]struct {
		facts facts
		want  string
	}{
		"none yet":         {ready(), ""},
		"by the depot":     {ready(tried(join, "Failed", stepPrecheck, codeTokenRefused, 1, 0)), "join-w-1"},
		"by the cluster":   {ready(tried(join, "Failed", stepJoin, "OCA-4102", 1, 0)), "join-w-1"},
		"another failure":  {ready(tried(join, "Failed", stepJoin, "OCA-4001", 1, 0)), ""},
		"it goes on":       {ready(tried(join, "Running", "", codeTokenRefused, 1, 0)), ""},
		"before the check": {ready(tried(join, "Failed", stepPrecheck, codeTokenRefused, 1, 0), tried(v1alpha1.ActionPrecheckMachine, "Succeeded", "", "", 1, 0)), "join-w-1"},
		"joined since":     {ready(tried(join, "Failed", stepPrecheck, codeTokenRefused, 1, 0), tried(join, "Succeeded", "", "", 1, 0)), ""},
	} {
		if got := refusal(c.facts.operations); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationReplaces: "join-w-1"}}}
	if !accepted(s, "") || !accepted(s, "join-w-1") || accepted(s, "join-w-2") {
		t.Error("data that replace a refused token are good until theirs is refused")
	}
}

// A clock that was ahead when an operation ended does not delay the next attempt for as long as it was wrong.
func TestRetryAfterAClockWasAhead(t *testing.T) {
	f := ready(tried(v1alpha1.ActionJoinMachine, v1alpha1.OperationFailed, stepConnect, "OCA-7601", 1, -8*time.Hour))
	for _, passed := range []time.Duration{0, 10 * time.Second, firstRetry} {
		f.now = now.Add(passed)
		d := decide(f)
		if retries := passed == firstRetry; (d.create != nil) != retries || d.again != firstRetry-passed {
			t.Errorf("after %s: %v, again in %s", passed, d.create, d.again)
		}
		f.machine.Status.RetryAfter = d.status.RetryAfter
	}
}
