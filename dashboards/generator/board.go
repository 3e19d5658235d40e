package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// A board is rows of panels, below variables for the data source, hosts and services.
type board struct {
	name, title, tells string
	rows               []row
}

// A row without a title goes on with the one before.
type row struct {
	title  string
	panels []panel
}

// A panel asks one or more queries. Units are Grafana's; a column is named after its query's legend. What nothing is
// found for says why that may be (empty); without it Grafana says "No data".
type panel struct {
	title, tells, unit string
	kind               kind
	empty              string
	queries            []query
}

type kind int

const (
	number kind = iota
	lines
	stacked
	rows
)

// A query is PromQL, where @r stands for the chosen hosts and services and @h for the chosen hosts.
type query struct{ promql, legend string }

var matchers = strings.NewReplacer("@r", `host_id=~"$host", job=~"$job"`, "@h", `host_id=~"$host"`)

var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${source}")}

func (b board) build() (dashboard.Dashboard, error) {
	built := dashboard.NewDashboardBuilder(b.title).
		Uid("memprov-"+b.name).
		Description(b.tells).
		Tags([]string{"memprov"}).
		Time("now-3h", "now").
		Refresh("1m").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("memprov").
			Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"memprov"}).
			IncludeVars(true).
			KeepTime(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("source").Label("Data source").Type("prometheus")).
		WithVariable(choice("host", "Host", "label_values(memprov_build_info, host_id)")).
		WithVariable(choice("job", "Service", `label_values(memprov_memory_control_bytes{host_id=~"$host"}, job)`))
	for _, row := range b.rows {
		if row.title != "" {
			built.WithRow(dashboard.NewRowBuilder(row.title))
		}
		for _, panel := range row.panels {
			built.WithPanel(panel.builder(uint32(24 / len(row.panels))))
		}
	}
	made, err := built.Build()
	// Grafana tells panels apart by number.
	for at, panel := range made.Panels {
		id := uint32(at + 1)
		if panel.RowPanel != nil {
			panel.RowPanel.Id = id
		} else {
			panel.Panel.Id = &id
		}
	}
	return made, err
}

// choice lets one choose values of a label; what has no such label is among all of them.
func choice(name, label, values string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(source).
		Query(dashboard.StringOrMap{String: &values}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		AllValue(".*")
}

func (p panel) builder(width uint32) cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		built := stat.NewPanelBuilder().
			Title(p.title).Description(p.tells).Datasource(source).Unit(p.unit).
			Height(4).Span(width).
			GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone)
		for _, query := range p.queries {
			built.WithTarget(query.builder().Instant())
		}
		return built
	case rows:
		built := table.NewPanelBuilder().
			Title(p.title).Description(p.tells).Datasource(source).Unit(p.unit).
			Height(9).Span(width).
			Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
		if p.empty != "" {
			built.NoValue(p.empty)
		}
		names := map[string]any{}
		for at, query := range p.queries {
			id := string(rune('A' + at))
			built.WithTarget(query.builder().Instant().Format(prometheus.PromQueryFormatTable).RefId(id))
			names["Value #"+id] = query.legend
			names["Value"] = query.legend
		}
		return built.
			WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
			WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
				"excludeByName": map[string]any{"Time": true},
				"renameByName":  names,
			}})
	default:
		built := timeseries.NewPanelBuilder().
			Title(p.title).Description(p.tells).Datasource(source).Unit(p.unit).
			Height(9).Span(width).
			ShowPoints(common.VisibilityModeNever).
			Legend(common.NewVizLegendOptionsBuilder().
				DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
		if p.empty != "" {
			built.NoValue(p.empty)
		}
		if p.kind == stacked {
			built.FillOpacity(30).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
		}
		for _, query := range p.queries {
			built.WithTarget(query.builder().Range())
		}
		return built
	}
}

func (q query) builder() *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		Datasource(source).
		Expr(matchers.Replace(q.promql)).
		LegendFormat(q.legend)
}
