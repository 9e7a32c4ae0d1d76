// SPDX-License-Identifier: Apache-2.0

// Package backup writes everything that makes up a cloud into one file, proves that the file can be restored, and restores it.
//
// The file is a tar archive, compressed with zstd and encrypted with age. "age -d FILE | zstd -d | tar x" unpacks it without this program:
//
//	header.json                        cloud, time, versions, databases
//	objects/KIND/NAME.json             the OnecloudCluster, ConfigMaps, Secrets
//	databases/DATABASE/KIND/NAME.sql   one statement, or for rows an INSERT in each line
//	manifest.json                      tables with rows and checksums, images, and the SHA-256 of every entry above
//
// The manifest comes last: a file without it is incomplete.
package backup

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/mysql/dump"
)

// Format is the version of the file's layout.
const Format = 1

// Suffix is the suffix of a backup's file name.
const Suffix = ".ocadm-backup"

// Header describes the contents of a backup.
type Header struct {
	Format int       `json:"format"`
	Cloud  Cloud     `json:"cloud"`
	Time   time.Time `json:"time"`
	// Version is the version of the cloud, Release the number of the release it ran, Ocadm the version of the program that wrote the file.
	Version string `json:"version,omitempty"`
	Release int    `json:"release,omitempty"`
	Ocadm   string `json:"ocadm"`
	// Server is the kind and version of the database server.
	Server    string   `json:"server"`
	Databases []string `json:"databases"`
}

// Cloud identifies a cloud.
type Cloud struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ID stays the same wherever the cloud is restored.
	ID string `json:"id"`
}

// Manifest is the last entry of a backup.
type Manifest struct {
	Data dump.Summary `json:"data"`
	// Images lists the images that the cloud ran.
	Images  []string `json:"images"`
	Entries []Entry  `json:"entries"`
}

// Entry is a part of the archive.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Object is a Kubernetes object in JSON.
type Object struct {
	Kind, Name string
	JSON       []byte
}

const (
	headerName   = "header.json"
	manifestName = "manifest.json"
	objectsDir   = "objects"
	databasesDir = "databases"
	// setupRecord is the length of a statement's preparation, in a record that tar programs ignore.
	setupRecord = "OCADM.setup"
)

// pieceName returns the unique name of a piece; rows are numbered.
func pieceName(p dump.Piece, number int) string {
	name := escape(p.Name)
	if p.Kind == dump.Rows {
		name += "." + strconv.Itoa(number)
	}
	return path.Join(databasesDir, escape(p.Database), string(p.Kind), name+".sql")
}

// parsePiece is the inverse of pieceName.
func parsePiece(name string) (p dump.Piece, err error) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != databasesDir {
		return p, fmt.Errorf("entry %q is of an unknown kind", name)
	}
	last, isSQL := strings.CutSuffix(parts[3], ".sql")
	p.Kind = dump.Kind(parts[2])
	if p.Kind == dump.Rows {
		last, _, _ = strings.Cut(last, ".")
	}
	if p.Database, err = url.PathUnescape(parts[1]); err == nil {
		p.Name, err = url.PathUnescape(last)
	}
	if err != nil || !isSQL {
		return p, fmt.Errorf("entry %q has a name that cannot be read", name)
	}
	return p, nil
}

// escape turns any name into one path element.
func escape(s string) string { return strings.ReplaceAll(url.PathEscape(s), ".", "%2E") }

func digest(b []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
