// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

var server *mariadb.Server

func TestMain(m *testing.M) {
	os.Exit(mariadb.Main(context.Background(), mariadb.Options{}, func(s *mariadb.Server) int {
		server = s
		return m.Run()
	}))
}

// env is an empty server, an administrator, and a connection to write with.
type env struct {
	*testing.T
	admin *mysql.Admin
	db    *sql.DB
}

func setUp(t *testing.T) env {
	t.Helper()
	if server == nil {
		t.Skip(mariadb.ErrNotInstalled)
	}
	require.NoError(t, server.Wipe(t.Context()))
	a, err := mysql.Open(t.Context(), mysql.Config{Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Patience: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.InterpolateParams = "tcp", server.Addr(), "root", server.RootPassword, true
	c.Params = map[string]string{"sql_mode": "''"}
	conn, err := driver.NewConnector(c)
	require.NoError(t, err)
	db := sql.OpenDB(conn)
	t.Cleanup(func() { _ = db.Close() })
	return env{T: t, admin: a, db: db}
}

func (e env) run(statements ...string) {
	e.Helper()
	for _, s := range statements {
		if _, err := e.db.ExecContext(e.Context(), s); err != nil {
			e.Fatalf("%.200s: %v", s, err)
		}
	}
}

// cell returns the first column of a query's first row.
func (e env) cell(query string) string {
	e.Helper()
	rows, err := e.db.QueryContext(e.Context(), query)
	if err != nil {
		e.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if !rows.Next() {
		e.Fatalf("%s: no row: %v", query, rows.Err())
	}
	require.NoError(e, rows.Scan(into...))
	return values[len(values)-1].String
}

func clone(p Piece) Piece {
	p.SQL = bytes.Clone(p.SQL)
	return p
}

// copied dumps databases and loads them into others with a prefix in the name.
func (e env) copied(prefix string, databases ...string) Summary {
	e.Helper()
	var pieces []Piece
	sum, err := Dump(e.Context(), e.admin, databases, func(p Piece) error {
		pieces = append(pieces, clone(p))
		return nil
	})
	require.NoError(e, err)
	e.load(prefix, pieces)
	return sum
}

func (e env) load(prefix string, pieces []Piece) {
	e.Helper()
	for _, p := range pieces {
		if p.Kind == Database {
			e.run("CREATE DATABASE " + quote(prefix+p.Name) + " CHARACTER SET utf8mb4")
		}
	}
	l, err := NewLoader(e.Context(), e.admin, func(db string) string { return prefix + db })
	require.NoError(e, err)
	defer l.Close()
	for _, p := range pieces {
		require.NoError(e, l.Load(e.Context(), p))
	}
	require.NoError(e, l.Finish(e.Context()))
}

// same fails unless the copy of a database has the same rows, by our checksum and by the server's.
func (e env) same(prefix string, sum Summary) {
	e.Helper()
	for _, d := range sum.Databases {
		have, err := Examine(e.Context(), e.admin, []string{prefix + d.Name})
		require.NoError(e, err)
		have.Databases[0].Name = d.Name
		if a, b := fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", have.Databases[0]); a != b {
			e.Errorf("the copy of %s differs:\n%s\n%s", d.Name, a, b)
		}
		for _, t := range d.Tables {
			a, b := e.cell("CHECKSUM TABLE "+quote(d.Name)+"."+quote(t.Name)), e.cell("CHECKSUM TABLE "+quote(prefix+d.Name)+"."+quote(t.Name))
			if a != b {
				e.Errorf("CHECKSUM TABLE of %s.%s: %s, of its copy %s", d.Name, t.Name, a, b)
			}
			c, d := withoutCounter(e.cell("SHOW CREATE TABLE "+quote(d.Name)+"."+quote(t.Name))), withoutCounter(e.cell("SHOW CREATE TABLE "+quote(prefix+d.Name)+"."+quote(t.Name)))
			if c != d {
				e.Errorf("table %s is\n%s\nits copy is\n%s", t.Name, c, d)
			}
		}
	}
}

func TestEveryType(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE types CHARACTER SET utf8mb4", "USE types", `CREATE TABLE types.every (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, ti TINYINT, bo BOOLEAN, si SMALLINT UNSIGNED, mi MEDIUMINT, i INT, bi BIGINT, de DECIMAL(65,30),
  f FLOAT, f2 FLOAT(7,3), d DOUBLE, y YEAR, b1 BIT(1), b64 BIT(64), da DATE, dt DATETIME(6), ts TIMESTAMP(6) NULL, tm TIME(6), c CHAR(10), vc VARCHAR(200),
  latin VARCHAR(100) CHARACTER SET latin1, cs VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, b BINARY(5), vb VARBINARY(100), tt TINYTEXT, te TEXT, lt LONGTEXT,
  tb TINYBLOB, bl BLOB, lb LONGBLOB, en ENUM('a','b\'c','') NOT NULL DEFAULT 'a', se SET('x','y','z'), js JSON, po POINT,
  gs INT AS (i * 2) STORED, gv VARCHAR(300) AS (CONCAT(vc, '!')) VIRTUAL
) COMMENT='a comment; with ''quotes'' and AUTO_INCREMENT=5'`,
		`INSERT INTO types.every (ti, bo, si, mi, i, bi, de, f, f2, d, y, b1, b64, da, dt, ts, tm, c, vc, latin, cs, b, vb, tt, te, lt, tb, bl, lb, en, se, js, po) VALUES
  (-128, TRUE, 65535, -8388608, -2147483648, -9223372036854775808, -12345678901234567890123456789012345.123456789012345678901234567890, 1.17549435e-38, 1234.567,
   2.2250738585072014e-308, 2155, b'1', b'1111111111111111111111111111111111111111111111111111111111111110', '0000-00-00', '0000-00-00 00:00:00.000000',
   '2038-01-19 03:14:07.999999', '-838:59:59.000000', 'abc', 'it''s; "x" \\ \n \r \0 \Z %', 'caf\u00e9', 'Ä', x'0001020300', x'00ff27220a5c1a', '', 'a\nb', '一二三😀',
   x'', x'27', x'ff00', 'b\'c', 'x,z', '{"a": "\\n\\u0000é\\""}', POINT(1.5, -2)),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'a', NULL, NULL, NULL),
  (127, FALSE, 0, 8388607, 2147483647, 9223372036854775807, 0.000000000000000000000000000001, 16777217, 0.1, 1.7976931348623157e308, 0, b'0', b'0', '9999-12-31',
   '2026-02-00 00:00:00', '1970-01-01 00:00:01', '838:59:59', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '[]', NULL)`,
		"CREATE TABLE types.zero (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT=77", "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
		"INSERT INTO types.zero VALUES (0, 1), (-3, 2)", "CREATE TABLE types.`od``d / name` (`se\"lect` INT PRIMARY KEY, `ü` TEXT)", "INSERT INTO types.`od``d / name` VALUES (1, 'x')",
		"CREATE TABLE types.empty (a INT)", "CREATE TABLE types.nokey (a FLOAT, b VARCHAR(9))", "INSERT INTO types.nokey VALUES (0.1, 'a'), (0.1, 'a'), (NULL, NULL), (3.4028234e38, '')",
		"CREATE TABLE types.parts (id INT, d DATE) PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN MAXVALUE)",
		"INSERT INTO types.parts VALUES (1, '2019-01-01'), (2, '2026-01-01')")
	sum := e.copied("copy_", "types")
	e.same("copy_", sum)
	if tables, rows := sum.Count(); tables != 6 || rows != 12 {
		t.Errorf("%d tables with %d rows", tables, rows)
	}
	if got := e.cell("SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'copy_types' AND TABLE_NAME = 'zero'"); got != "77" {
		t.Errorf("the counter of the copy is %s", got)
	}
}

func TestProgramsAndKeys(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE a", "CREATE DATABASE b", "CREATE TABLE a.parent (id INT PRIMARY KEY, n INT)", "CREATE TABLE a.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a.parent (id))",
		"INSERT INTO a.parent VALUES (1, 0), (2, 0)", "INSERT INTO a.child VALUES (10, 2)", "CREATE TABLE b.log (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT)",
		"USE a", "CREATE VIEW a.z_first AS SELECT id FROM a.parent", "CREATE VIEW a.a_second AS SELECT id + 1 AS n FROM a.z_first",
		"CREATE FUNCTION a.twice(x INT) RETURNS INT DETERMINISTIC RETURN x * 2",
		"CREATE PROCEDURE a.twice(x INT) BEGIN\n  SELECT 'a;\n b' AS c;\n  SELECT x; -- done\nEND",
		"CREATE TRIGGER a.count_up BEFORE INSERT ON a.child FOR EACH ROW BEGIN\n  UPDATE parent SET n = n + 1 WHERE id = NEW.p;\nEND",
		"CREATE EVENT a.nightly ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' DO DELETE FROM a.child WHERE id < 0")
	if !server.MySQL {
		e.run("CREATE SEQUENCE a.numbers START WITH 100 INCREMENT BY 5", "SELECT NEXT VALUE FOR a.numbers", "USE a", "SET SESSION sql_mode = 'ORACLE'",
			"CREATE PACKAGE ledger AS FUNCTION thrice(x INT) RETURN INT; END",
			"CREATE PACKAGE BODY ledger AS FUNCTION thrice(x INT) RETURN INT AS BEGIN RETURN x * 3; END; END", "SET SESSION sql_mode = ''")
	}
	e.run("INSERT INTO a.child VALUES (11, 1)")
	sum := e.copied("copy_", "a", "b")
	e.same("copy_", sum)
	if got := e.cell("SELECT n FROM copy_a.parent WHERE id = 1"); got != "1" {
		t.Errorf("the trigger ran while loading: %s", got)
	}
	e.run("INSERT INTO copy_a.child VALUES (12, 1)")
	for query, want := range map[string]string{
		"SELECT n FROM copy_a.parent WHERE id = 1": "2", "SELECT n FROM a.parent WHERE id = 1": "1", "SELECT SUM(n) FROM copy_a.a_second": "5",
		"SELECT copy_a.twice(4)": "8", "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'copy_a'": map[bool]string{true: "2", false: "4"}[server.MySQL], // MariaDB has a package and its body
		"SELECT STARTS FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'copy_a'": "2030-01-01 00:00:00",
	} {
		if got := e.cell(query); got != want {
			t.Errorf("%s: %s, not %s", query, got, want)
		}
	}
	if !server.MySQL {
		if first, second := e.cell("SELECT NEXT VALUE FOR a.numbers"), e.cell("SELECT NEXT VALUE FOR copy_a.numbers"); second < first {
			t.Errorf("the sequence goes back from %s to %s", first, second)
		}
	}
}

// TestRandomRows checks that any bytes survive the copy. It prints the seed.
func TestRandomRows(t *testing.T) {
	e := setUp(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	e.run("CREATE DATABASE fuzz CHARACTER SET utf8mb4", "CREATE TABLE fuzz.r (id INT AUTO_INCREMENT PRIMARY KEY, s LONGTEXT, b LONGBLOB, d DOUBLE, f FLOAT, bi BIT(20))")
	alphabet := []string{"'", "''", `\`, "`", "\"", "\n", "\r", "\x00", "\x1a", ";", ";\n", "--", "/*", "*/", "é", "😀", "%", "_", "NULL", "),(", "DELIMITER", " "}
	for range 400 {
		var s strings.Builder
		for range r.IntN(30) {
			s.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		b := make([]byte, r.IntN(60))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		d := r.NormFloat64() * 1e10
		if _, err := e.db.ExecContext(t.Context(), "INSERT INTO fuzz.r (s, b, d, f, bi) VALUES (?, ?, ?, ?, ?)", s.String(), b, d, float32(d), r.IntN(1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	e.run("INSERT INTO fuzz.r (s, b) VALUES (REPEAT('a\\n', 2000000), REPEAT(x'00ff', 1000000))", "INSERT INTO fuzz.r (s, b, d, f, bi) SELECT s, b, d, f, bi FROM fuzz.r WHERE id < 400")
	e.same("copy_", e.copied("copy_", "fuzz"))
}

// TestBatches checks that many rows become several statements and pieces, with one statement per line.
func TestBatches(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE many", "CREATE TABLE many.t (id INT PRIMARY KEY, pad VARCHAR(1000))")
	for i := range 20 {
		var rows []string
		for j := range 500 {
			rows = append(rows, fmt.Sprintf("(%d, REPEAT('x\\n', 500))", i*500+j))
		}
		e.run("INSERT INTO many.t VALUES " + strings.Join(rows, ","))
	}
	var pieces []Piece
	sum, err := Dump(t.Context(), e.admin, []string{"many"}, func(p Piece) error {
		pieces = append(pieces, clone(p))
		return nil
	})
	require.NoError(t, err)
	if n := len(slices.DeleteFunc(slices.Clone(pieces), func(p Piece) bool { return p.Kind != Rows })); n < 3 {
		t.Errorf("%d pieces", n)
	}
	for _, p := range pieces {
		if len(p.SQL) > pieceSize+2*statementSize {
			t.Errorf("a piece has %d bytes", len(p.SQL))
		}
	}
	e.load("copy_", pieces)
	e.same("copy_", sum)
}

// TestSnapshot checks that a dump excludes everything that is written during it, in any table.
func TestSnapshot(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE s", "CREATE TABLE s.a (id INT PRIMARY KEY)", "CREATE TABLE s.z (id INT PRIMARY KEY)", "INSERT INTO s.a VALUES (1)", "INSERT INTO s.z VALUES (1)")
	sum, err := Dump(t.Context(), e.admin, []string{"s"}, func(p Piece) error {
		if p.Kind == Table && p.Name == "a" {
			e.run("INSERT INTO s.a VALUES (2)", "INSERT INTO s.z VALUES (2)", "UPDATE s.z SET id = 3 WHERE id = 1")
		}
		return nil
	})
	require.NoError(t, err)
	for _, tab := range sum.Databases[0].Tables {
		if tab.Rows != 1 || tab.Checksum != sum.Databases[0].Tables[0].Checksum {
			t.Errorf("table %s: %+v", tab.Name, tab)
		}
	}
}

func TestSchemaChanges(t *testing.T) {
	for name, change := range map[string]string{
		"added column": "ALTER TABLE s.z ADD COLUMN more INT DEFAULT 4", "dropped column": "ALTER TABLE s.z DROP COLUMN v", "rebuilt": "ALTER TABLE s.z FORCE",
		"emptied": "TRUNCATE TABLE s.z", "dropped": "DROP TABLE s.z", "renamed": "RENAME TABLE s.z TO s.y", "made": "CREATE TABLE s.y (id INT)",
		"index": "CREATE INDEX late ON s.a (v)", "view": "CREATE VIEW s.v AS SELECT 1", "rows only": "INSERT INTO s.z VALUES (5, 5)",
	} {
		t.Run(name, func(t *testing.T) {
			e := setUp(t)
			e.run("CREATE DATABASE s", "CREATE TABLE s.a (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "CREATE TABLE s.z (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
				"INSERT INTO s.z (v) VALUES (1)")
			done := false
			_, err := Dump(t.Context(), e.admin, []string{"s"}, func(p Piece) error {
				if p.Kind == Table && !done {
					done = true
					e.run(change)
				}
				return nil
			})
			if want := name != "rows only"; errors.Is(err, ErrSchemaChanged) != want || !want && err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNeverBlocked checks that a table can be altered as soon as it has been read.
func TestNeverBlocked(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE s", "CREATE TABLE s.a (id INT PRIMARY KEY)", "INSERT INTO s.a VALUES (1)", "CREATE TABLE s.b (id INT PRIMARY KEY)")
	_, err := Dump(t.Context(), e.admin, []string{"s"}, func(p Piece) error {
		if p.Kind == Table && p.Name == "b" {
			e.run("SET SESSION lock_wait_timeout = 30", "ALTER TABLE s.a ADD COLUMN x INT")
		}
		return nil
	})
	if !errors.Is(err, ErrSchemaChanged) {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	e := setUp(t)
	if _, err := Dump(t.Context(), e.admin, []string{"none"}, func(Piece) error { return nil }); err == nil || !strings.Contains(err.Error(), `database "none"`) {
		t.Error(err)
	}
	broken := errors.New("the disk is full")
	e.run("CREATE DATABASE s", "CREATE TABLE s.a (id INT PRIMARY KEY)", "INSERT INTO s.a VALUES (1)")
	if _, err := Dump(t.Context(), e.admin, []string{"s"}, func(p Piece) error {
		if p.Kind == Rows {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	l, err := NewLoader(t.Context(), e.admin, func(db string) string { return db })
	require.NoError(t, err)
	defer l.Close()
	l.limit = 100
	if err := l.Load(t.Context(), Piece{Database: "s", Kind: Rows, Name: "a", SQL: []byte("INSERT INTO a (id) VALUES (" + strings.Repeat("1", 200) + ");\n")}); err == nil ||
		!strings.Contains(err.Error(), "a row has 228 bytes, and the server accepts 100") || mysql.ClassOf(err) != mysql.TooLong {
		t.Error(err)
	}
}

func TestUnqualified(t *testing.T) {
	for statement, want := range map[string]string{
		"CREATE DEFINER=`root`@`%` TRIGGER a.count_up BEFORE INSERT ON a.child FOR EACH ROW SET x = a.y":       "CREATE DEFINER=`root`@`%` TRIGGER count_up BEFORE INSERT ON child FOR EACH ROW SET x = a.y",
		"CREATE DEFINER=`root`@`%` TRIGGER `a b` . `c.d`\nafter update on `a b`.`e``f` for each row begin end": "CREATE DEFINER=`root`@`%` TRIGGER `c.d`\nafter update on `e``f` for each row begin end",
		"CREATE TRIGGER t BEFORE DELETE ON c FOR EACH ROW BEGIN END":                                           "CREATE TRIGGER t BEFORE DELETE ON c FOR EACH ROW BEGIN END",
		"CREATE VIEW `v` AS SELECT 1": "CREATE VIEW `v` AS SELECT 1",
	} {
		if got := unqualified(statement); got != want {
			t.Errorf("%s became %s", statement, got)
		}
	}
}
