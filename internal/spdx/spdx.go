// SPDX-License-Identifier: Apache-2.0

// Package spdx writes software bills of materials in the JSON form of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/).
package spdx

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Package is a deliverable, or part of one.
type Package struct {
	Name, Version string
	// URL is its package URL (https://github.com/package-url/purl-spec); empty if it has none.
	URL string
	// SHA256 is the hexadecimal digest of its file; empty if it is not a file.
	SHA256 string
	// Home is where its file is published; empty if unknown.
	Home string
}

// Document is the bill of materials of one delivery: the packages of Parts are contained in Whole.
type Document struct {
	// Namespace is a URI that is unique to this document.
	Namespace string
	Tool      string
	Created   time.Time
	Whole     Package
	Parts     []Package
}

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []entry        `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type entry struct {
	Name      string      `json:"name"`
	ID        string      `json:"SPDXID"`
	Version   string      `json:"versionInfo,omitempty"`
	Download  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Checksums []checksum  `json:"checksums,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const documentID = "SPDXRef-DOCUMENT"

var notInIDs = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// Write writes the document. Equal documents give equal bytes.
func Write(w io.Writer, d Document) error {
	out := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: d.Whole.Name + " " + d.Whole.Version, Namespace: d.Namespace,
		Creation: creation{d.Created.UTC().Format(time.RFC3339), []string{"Tool: " + d.Tool}},
	}
	whole := newEntry(d.Whole, 0)
	out.Packages = append(out.Packages, whole)
	out.Relationships = append(out.Relationships, relationship{documentID, "DESCRIBES", whole.ID})
	for i, p := range d.Parts {
		part := newEntry(p, i+1)
		out.Packages = append(out.Packages, part)
		out.Relationships = append(out.Relationships, relationship{whole.ID, "CONTAINS", part.ID})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("writing the bill of materials: %w", err)
	}
	return nil
}

func newEntry(p Package, number int) entry {
	e := entry{Name: p.Name, ID: fmt.Sprintf("SPDXRef-%d-%s", number, notInIDs.ReplaceAllString(p.Name, "-")), Version: p.Version, Download: cmp.Or(p.Home, "NOASSERTION")}
	if p.SHA256 != "" {
		e.Checksums = []checksum{{"SHA256", p.SHA256}}
	}
	if p.URL != "" {
		e.Refs = []reference{{"PACKAGE-MANAGER", "purl", p.URL}}
	}
	return e
}
