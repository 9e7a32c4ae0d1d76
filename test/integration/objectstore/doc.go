// SPDX-License-Identifier: Apache-2.0

// Package objectstore tests backups in a bucket against a real object store.
package objectstore
