// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
)

// storeFlags configure access to an object store.
type storeFlags struct {
	endpoint, region, caFile string
	plain                    bool
}

func (s *storeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&s.endpoint, "s3-endpoint", "", "host, or host:port, of the object store")
	fs.StringVar(&s.region, "s3-region", "", "region of the bucket")
	fs.StringVar(&s.caFile, "s3-ca-file", "", "file with CA certificates to trust for the object store")
	fs.BoolVar(&s.plain, "s3-plain-http", false, "use plain HTTP for the object store")
}

const bucketScheme = "s3://"

// fit refuses object-store flags if no place is a bucket: the user would believe that the backup goes there.
func (s *storeFlags) fit(places ...string) error {
	if *s == (storeFlags{}) || slices.ContainsFunc(places, func(p string) bool { return strings.HasPrefix(p, bucketScheme) }) {
		return nil
	}
	return misused("the --s3 flags need a bucket", "name it as s3://BUCKET/PATH, or leave out the --s3 flags")
}

// later checks a place as far as possible without the network, and returns its name and a function that opens it.
func (s *storeFlags) later(place string) (name string, open func(context.Context) (backup.Store, error), err error) {
	open = func(ctx context.Context) (backup.Store, error) { return s.open(ctx, place) }
	if !strings.HasPrefix(place, bucketScheme) {
		return here(place), open, isDirectory(place)
	}
	cfg, err := s.s3(place)
	return cfg.String(), open, err
}

// here returns a directory with the host's name for the record in the cluster, which is read elsewhere.
func here(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if host, err := os.Hostname(); err == nil {
		return host + ":" + dir
	}
	return dir
}

func (s *storeFlags) open(ctx context.Context, place string) (backup.Store, error) {
	if !strings.HasPrefix(place, bucketScheme) {
		return backup.Dir(place), isDirectory(place)
	}
	cfg, err := s.s3(place)
	if err != nil {
		return nil, err
	}
	return cluster.OpenS3(ctx, cfg)
}

func isDirectory(place string) error {
	if i, err := os.Stat(place); err != nil || !i.IsDir() {
		return misused(fmt.Sprintf("%q is not a directory", place), "give a directory that exists, or s3://BUCKET/PATH")
	}
	return nil
}

// s3 parses s3://BUCKET/PATH.
func (s *storeFlags) s3(place string) (backup.S3Config, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(place, bucketScheme), "/")
	if !strings.HasPrefix(place, bucketScheme) || bucket == "" {
		return backup.S3Config{}, misused(fmt.Sprintf("%q is not a bucket", place), "for example s3://backups/cloud")
	}
	if s.endpoint == "" {
		return backup.S3Config{}, misused("no object store is specified", "for example --s3-endpoint s3.example.com")
	}
	ca := ""
	if s.caFile != "" {
		text, err := os.ReadFile(s.caFile)
		if err != nil {
			return backup.S3Config{}, misused(err.Error(), "give a file with certificates in PEM")
		}
		ca = string(text)
	}
	return backup.S3Config{CA: ca, Endpoint: s.endpoint, Region: s.region, Plain: s.plain, Bucket: bucket, Prefix: strings.Trim(prefix, "/"),
		AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
}

// file returns the store of a file and its name there.
func (s *storeFlags) file(ctx context.Context, file string) (backup.Store, string, error) {
	if !strings.HasPrefix(file, bucketScheme) {
		if i, err := os.Stat(file); err != nil || i.IsDir() {
			return nil, "", misused(fmt.Sprintf("%q is not a file", file), "ocadm cluster backup list --in DIRECTORY")
		}
		return backup.Dir(filepath.Dir(file)), filepath.Base(file), nil
	}
	i := strings.LastIndexByte(file, '/')
	if i < len(bucketScheme) || i == len(file)-1 {
		return nil, "", misused(fmt.Sprintf("%q is not a file in a bucket", file), "for example s3://backups/cloud/default-5f2c81d0-20261122T020000Z"+backup.Suffix)
	}
	store, err := s.open(ctx, file[:i])
	return store, file[i+1:], err
}

type keyFlags struct {
	to             []string
	passphraseFile string
	unencrypted    bool
	identityFiles  []string
}

func (k *keyFlags) addIdentities(fs *pflag.FlagSet) {
	k.addIdentityFlag(fs)
	fs.StringVar(&k.passphraseFile, "passphrase-file", "", "file with the passphrase of the backup")
}

func (k *keyFlags) addIdentityFlag(fs *pflag.FlagSet) {
	fs.StringArrayVar(&k.identityFiles, "identity", nil, "file with the secret key of a recipient; may be repeated")
}

func addRecipientFlag(fs *pflag.FlagSet, keys *[]string) {
	fs.StringArrayVar(keys, "recipient", nil, "public key to encrypt for (age1…, ssh-ed25519 …), or @FILE with one per line; may be repeated")
}

// publicKeys returns the values of --recipient, replacing @FILE with the keys in the file.
func publicKeys(values []string) ([]string, error) {
	var keys []string
	for _, v := range values {
		name, isFile := strings.CutPrefix(v, "@")
		if !isFile {
			keys = append(keys, v)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, misused(err.Error(), "give a file with public keys")
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				keys = append(keys, line)
			}
		}
	}
	return keys, nil
}

// recipients returns those of the flags, or else of the cloud.
func (k *keyFlags) recipients(ctx context.Context, c client.Client, key client.ObjectKey) ([]age.Recipient, age.Identity, error) {
	given := 0
	for _, is := range []bool{len(k.to) > 0, k.passphraseFile != "", k.unencrypted} {
		if is {
			given++
		}
	}
	if given > 1 {
		return nil, nil, misused("--recipient, --passphrase-file and --unencrypted exclude each other", "give one of them")
	}
	switch {
	case k.unencrypted:
		return nil, nil, nil
	case k.passphraseFile != "":
		return k.passphrase()
	case len(k.to) > 0:
		lines, err := publicKeys(k.to)
		if err != nil {
			return nil, nil, err
		}
		out, err := backup.Recipients(lines...)
		if err != nil {
			return nil, nil, misused(err.Error(), "give the public key that age-keygen prints: age1…")
		}
		return out, nil, nil
	}
	out, err := cluster.Recipients(ctx, c, key)
	if err == nil && len(out) == 0 {
		err = finding.New("OCA-7406", "The backup has no recipient", "the file would hold all passwords in clear text, and spec.backup.recipients is empty",
			"give --recipient or --passphrase-file; or --unencrypted, and keep the file safe")
	}
	return out, nil, err
}

func (k *keyFlags) passphrase() ([]age.Recipient, age.Identity, error) {
	text, err := os.ReadFile(k.passphraseFile)
	secret := strings.TrimRight(string(text), "\r\n")
	if err == nil && secret == "" {
		err = errors.New(k.passphraseFile + " is empty")
	}
	if err != nil {
		return nil, nil, misused(err.Error(), "give a file with the passphrase on its first line")
	}
	r, i, err := backup.Passphrase(secret)
	if err != nil {
		return nil, nil, err
	}
	return []age.Recipient{r}, i, nil
}

func (k *keyFlags) identities() ([]age.Identity, error) {
	if k.passphraseFile != "" {
		if len(k.identityFiles) > 0 {
			return nil, misused("--identity and --passphrase-file exclude each other", "give the one that the file was encrypted for")
		}
		_, i, err := k.passphrase()
		return []age.Identity{i}, err
	}
	var out []age.Identity
	for _, name := range k.identityFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, misused(err.Error(), "give the file that age-keygen wrote")
		}
		ids, err := backup.Identities(text)
		if err != nil {
			return nil, misused(err.Error(), "give the file that age-keygen wrote")
		}
		out = append(out, ids...)
	}
	return out, nil
}

// same returns recipients for the keys that decrypt another backup, so that no secret ends up less protected than before.
func (k *keyFlags) same(ids []age.Identity) ([]age.Recipient, age.Identity, error) {
	if k.passphraseFile != "" {
		return k.passphrase()
	}
	var out []age.Recipient
	for _, id := range ids {
		switch key := id.(type) {
		case *age.X25519Identity:
			out = append(out, key.Recipient())
		case *age.HybridIdentity:
			out = append(out, key.Recipient())
		default:
			return nil, nil, misused("the present data cannot be encrypted for this key", "save it first with ocadm cluster backup create, then give --no-backup")
		}
	}
	return out, nil, nil
}

// databaseFlags select a database server other than the cloud's. They are not settings of init, so that what init saved is never used by mistake.
type databaseFlags struct {
	host, user, passwordFile, tls, caFile string
	port                                  int32
}

func (d *databaseFlags) add(fs *pflag.FlagSet, of string) {
	fs.StringVar(&d.host, "database-host", "", "database server "+of)
	fs.Int32Var(&d.port, "database-port", 0, "port of the database server (default 3306)")
	fs.StringVar(&d.user, "database-user", "", "administrator account of the database server (default root)")
	fs.StringVar(&d.passwordFile, "database-password-file", "", "file with the administrator's password")
	fs.Var(ui.NewChoice(&d.tls, config.Find("database.tls").Choices...), "database-tls", "encryption: disabled, preferred, required, verify-ca or verify-identity")
	fs.StringVar(&d.caFile, "database-ca-file", "", "file with the CA certificates of the server")
}

func (d *databaseFlags) server(required bool) (v1alpha1.DatabaseServer, error) {
	out := v1alpha1.DatabaseServer{Host: d.host, Port: d.port, Username: d.user, TLS: v1alpha1.DatabaseTLS{Mode: d.tls}}
	if d.host == "" {
		if required || *d != (databaseFlags{}) {
			return out, misused("no database server is specified", "give --database-host")
		}
		return out, nil
	}
	if d.passwordFile == "" {
		return out, misused("the password of the database server is missing", "give --database-password-file")
	}
	text, err := os.ReadFile(d.passwordFile)
	if err != nil {
		return out, misused(err.Error(), "give a file with the password")
	}
	out.Password = strings.TrimRight(string(text), "\r\n")
	if d.caFile != "" {
		ca, err := os.ReadFile(d.caFile)
		if err != nil {
			return out, misused(err.Error(), "give a file with certificates in PEM")
		}
		out.TLS.CA = string(ca)
	}
	return out, nil
}
