package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const exampleGrafana = "../../../examples/grafana/"

// dashboard contains the fields of a Grafana dashboard that the tests use.
type dashboard struct {
	Title, UID, Description string
	SchemaVersion           int
	Time                    struct{ From, To string }
	Templating              struct{ List []dashboardVariable }
	Annotations             struct{ List []dashboardAnnotation }
	Panels                  []dashboardPanel
}

type dashboardSource struct{ Type, UID string }

type dashboardVariable struct {
	Name, Type, Definition, AllValue string
	Datasource                       dashboardSource
	// Query is a string for variables of data sources, and otherwise an object that contains the string.
	Query      json.RawMessage
	Multi      bool
	IncludeAll bool
	Current    struct{ Value string }
}

// query returns the query of a query variable.
func (v *dashboardVariable) query() (text string, err error) {
	var q struct{ Query string }
	err = json.Unmarshal(v.Query, &q)
	return q.Query, err
}

type dashboardAnnotation struct {
	Name, Expr string
	BuiltIn    int
	Datasource dashboardSource
}

type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	Datasource               dashboardSource
	GridPos                  struct{ H, W, X, Y int }
	Interval                 string
	Collapsed                bool
	Panels                   []dashboardPanel
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Options struct {
		Legend struct {
			ShowLegend             bool
			DisplayMode, Placement string
		}
	}
	Targets []dashboardTarget
}

type dashboardTarget struct {
	RefID, Expr, LegendFormat string
	Instant, Range            bool
	Datasource                dashboardSource
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(exampleGrafana + "dashboards/*.json")
	require.NoError(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), file)
		require.NotContains(t, all, d.UID, "%s: a second dashboard with this uid", file)
		all[d.UID] = d
	}
	require.Len(t, all, 2)
	return all
}

// TestDashboardsAreSound checks that the dashboards are valid for Grafana, and that their panels have titles, units and
// descriptions.
func TestDashboardsAreSound(t *testing.T) {
	t.Parallel()
	source := dashboardSource{Type: "prometheus", UID: "${datasource}"}
	types := map[string]bool{"timeseries": true, "stat": true, "table": true}
	for uid, d := range readDashboards(t) {
		require.NotEmpty(t, d.Title)
		require.NotEmpty(t, d.Description)
		require.NotEmpty(t, uid)
		require.GreaterOrEqual(t, d.SchemaVersion, 39)
		require.Equal(t, "datasource", d.Templating.List[0].Type, "%s: where the data is from must be a choice", uid)
		require.Equal(t, "datasource", d.Templating.List[0].Name)
		for _, v := range d.Templating.List[1:] {
			require.Equal(t, source, v.Datasource, v.Name)
			q, err := v.query()
			require.NoError(t, err)
			require.Equal(t, v.Definition, q, v.Name)
		}
		ids, titles, cells, section := map[int]bool{}, map[string]bool{}, map[[2]int]string{}, ""
		for _, p := range d.Panels {
			what := fmt.Sprintf("%s: panel %d, %q", uid, p.ID, p.Title)
			require.Positive(t, p.ID, what)
			require.False(t, ids[p.ID], "%s: the id is taken", what)
			require.NotEmpty(t, p.Title, what)
			ids[p.ID] = true
			g := p.GridPos
			require.LessOrEqual(t, g.X+g.W, 24, what)
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					require.Empty(t, cells[[2]int{x, y}], "%s: lies over another panel", what)
					cells[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				require.False(t, p.Collapsed, what)
				section = p.Title
				continue
			}
			require.True(t, types[p.Type], "%s: type %s", what, p.Type)
			require.False(t, titles[section+p.Title], "%s: a second panel of this title", what)
			titles[section+p.Title] = true
			require.NotEmpty(t, p.Description, "%s: say what it shows", what)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s: name the unit", what)
			require.Equal(t, source, p.Datasource, what)
			if p.Type == "timeseries" {
				require.True(t, p.Options.Legend.ShowLegend, what)
				require.Equal(t, "bottom", p.Options.Legend.Placement, what)
			}
			require.NotEmpty(t, p.Targets, "%s: has no query", what)
			refs := map[string]bool{}
			for _, target := range p.Targets {
				require.NotEmpty(t, target.Expr, what)
				require.Equal(t, source, target.Datasource, what)
				require.NotEqual(t, target.Instant, target.Range, what)
				require.False(t, refs[target.RefID], what)
				refs[target.RefID] = true
				if p.Type == "timeseries" {
					require.NotEmpty(t, target.LegendFormat, "%s: name the lines", what)
				}
			}
		}
	}
}

// readStrictly decodes a YAML file and rejects unknown fields.
func readStrictly(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into), file)
}

// provisionedSources returns the uids of the data sources that a file provisions. Their URLs must start with url.
func provisionedSources(t *testing.T, file, url string) (uids map[string]bool) {
	t.Helper()
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			JSONData                     struct {
				HTTPMethod     string `yaml:"httpMethod"`
				TimeInterval   string `yaml:"timeInterval"`
				PrometheusType string `yaml:"prometheusType"`
				CacheLevel     string `yaml:"cacheLevel"`
				ManageAlerts   bool   `yaml:"manageAlerts"`
			} `yaml:"jsonData"`
		}
	}
	readStrictly(t, file, &sources)
	require.Equal(t, 1, sources.APIVersion)
	defaults := 0
	uids = map[string]bool{}
	for _, s := range sources.Datasources {
		require.False(t, uids[s.UID], s.UID)
		uids[s.UID] = true
		require.Equal(t, "prometheus", s.Type)
		require.Equal(t, "proxy", s.Access)
		require.Equal(t, "POST", s.JSONData.HTTPMethod, "long queries don't fit into addresses")
		require.Equal(t, "15s", s.JSONData.TimeInterval)
		require.True(t, strings.HasPrefix(s.URL, url), s.URL)
		if s.IsDefault {
			defaults++
		}
	}
	require.Equal(t, 1, defaults)
	return uids
}

// TestGrafanaIsProvisioned checks that the dashboards use existing data sources, and that files exist at the paths that
// other files refer to.
func TestGrafanaIsProvisioned(t *testing.T) {
	t.Parallel()
	for file, host := range map[string]string{
		exampleGrafana + "provisioning/datasources/cassia.yml": "localhost",
		"../../../examples/compose/grafana-datasource.yml":     "cassia",
	} {
		uids := provisionedSources(t, file, "http://"+host+":9201")
		for uid, d := range readDashboards(t) {
			require.True(t, uids[d.Templating.List[0].Current.Value],
				"%s: %s asks for a data source that there isn't", file, uid)
		}
	}

	var dashboards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type, Folder string
			AllowUIUpdates     bool `yaml:"allowUiUpdates"`
			Seconds            int  `yaml:"updateIntervalSeconds"`
			Options            struct{ Path string }
		}
	}
	readStrictly(t, exampleGrafana+"provisioning/dashboards/cassia.yml", &dashboards)
	require.Equal(t, 1, dashboards.APIVersion)
	require.Len(t, dashboards.Providers, 1)
	require.Equal(t, "file", dashboards.Providers[0].Type)
	readme, err := os.ReadFile(exampleGrafana + "README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "cp -r dashboards "+filepath.Dir(dashboards.Providers[0].Options.Path))
}
