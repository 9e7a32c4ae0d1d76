// SPDX-License-Identifier: Apache-2.0

package spdx_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/spdx"
	"yunion.io/x/ocadm/test/require"
)

func TestWrite(t *testing.T) {
	d := spdx.Document{
		Namespace: "https://example.org/1", Tool: "test", Created: time.Unix(0, 0),
		Whole: spdx.Package{Name: "whole", Version: "v1", SHA256: strings.Repeat("ab", 32)},
		Parts: []spdx.Package{
			{Name: "example.org/a/b_c", Version: "v2.0.0+incompatible", URL: "pkg:golang/example.org/a/b_c@v2.0.0%2Bincompatible"},
			{Name: "example.org/a-b/c", Version: "v3"}, {Name: "example.org/a/b/c", Version: "v3"},
		},
	}
	var one, two bytes.Buffer
	require.NoError(t, spdx.Write(&one, d))
	if err := spdx.Write(&two, d); err != nil || one.String() != two.String() {
		t.Fatalf("equal documents differ (error %v)", err)
	}
	var got struct {
		Creation struct{ Created string } `json:"creationInfo"`
		Packages []struct {
			Name, SPDXID, VersionInfo, DownloadLocation string
			Checksums                                   []struct{ Algorithm, ChecksumValue string }
			ExternalRefs                                []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
	}
	require.NoError(t, json.Unmarshal(one.Bytes(), &got))
	if got.Creation.Created != "1970-01-01T00:00:00Z" || len(got.Packages) != 4 || len(got.Relationships) != 4 {
		t.Fatalf("%s", one.String())
	}
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, p := range got.Packages {
		if !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.SPDXID) || ids[p.SPDXID] || p.DownloadLocation == "" {
			t.Errorf("package %+v", p)
		}
		ids[p.SPDXID] = true
	}
	for _, r := range got.Relationships {
		if !ids[r.SpdxElementID] || !ids[r.RelatedSpdxElement] {
			t.Errorf("%+v refers to nothing", r)
		}
	}
	if sum := got.Packages[0].Checksums; len(sum) != 1 || sum[0].Algorithm != "SHA256" || sum[0].ChecksumValue != d.Whole.SHA256 {
		t.Errorf("checksums %v", sum)
	}
	if refs := got.Packages[1].ExternalRefs; len(refs) != 1 || refs[0].ReferenceLocator != d.Parts[0].URL {
		t.Errorf("references %v", refs)
	}
}
