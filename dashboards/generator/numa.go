package main

var numa = board{
	name:  "numa",
	title: "memprov: NUMA",
	tells: "Which share of the time of sampled accesses goes to another node. It needs the rules of dashboards/rules/access.yaml.",
	rows: []row{
		{"Services", []panel{
			{
				title: "Remote share of access time, at least", unit: "percentunit", kind: lines,
				tells:   "Lower end of the 95 % interval; none below 100 equal samples in ten minutes.",
				queries: []query{{`topk(10, memprov:access_remote_share_lower:ratio10m{@r, level="container"})`, "{{job}} ({{memprov_access_method}})"}},
			},
			{
				title: "Remote share of access time", unit: "percentunit", kind: lines,
				queries: []query{{`topk(10, memprov:access_remote_share:ratio10m{@r, level="container"})`, "{{job}} ({{memprov_access_method}})"}},
			},
			{
				title: "Remote share of hosts, and what even spreading would give", unit: "percentunit", kind: lines,
				queries: []query{
					{`memprov:access_remote_share:ratio10m{@h, level="host"}`, "{{host_id}} ({{memprov_access_method}})"},
					{`1 - 1 / memprov_numa_nodes{@h}`, "{{host_id}}, spread evenly"},
				},
			},
		}},
		{"Owners", []panel{
			{
				title: "Owners by remote time", unit: "short", kind: rows,
				tells: "Of the last ten minutes. Time is in cycles of the CPU that waited.",
				queries: []query{
					{`topk(50, sum by (job, ` + owner + `, memprov_access_method) (memprov:access_time_remote:increase10m{@r, level="owner"}))`, "Remote cycles"},
					{`sum by (job, ` + owner + `, memprov_access_method) (memprov:access_time_remote:increase10m{@r, level="owner"}) / sum by (job, ` + owner + `, memprov_access_method) (memprov:access_time_known:increase10m{@r, level="owner"})`, "Share"},
					{`min by (job, ` + owner + `, memprov_access_method) (memprov:access_remote_share_lower:ratio10m{@r, level="owner"})`, "At least"},
					{`sum by (job, ` + owner + `, memprov_access_method) (memprov:access_effective_samples:ratio10m{@r, level="owner"})`, "Equal samples"},
				},
			},
		}},
		{"Where accesses go", []panel{
			{
				title: "Access time by locality, as the hardware says", unit: "percentunit", kind: stacked,
				queries: []query{{`sum by (memprov_numa_locality) (memprov:access_time:increase10m{@r, level="container", memprov_access_method="served"}) / ignoring (memprov_numa_locality) group_left () sum(memprov:access_time:increase10m{@r, level="container", memprov_access_method="served"})`, "{{memprov_numa_locality}}"}},
			},
			{
				title: "Access time by locality, as pages lie", unit: "percentunit", kind: stacked,
				queries: []query{{`sum by (memprov_numa_locality) (memprov:access_time:increase10m{@r, level="container", memprov_access_method="placement"}) / ignoring (memprov_numa_locality) group_left () sum(memprov:access_time:increase10m{@r, level="container", memprov_access_method="placement"})`, "{{memprov_numa_locality}}"}},
			},
			{
				title: "Remote cycles in a second of CPU time", unit: "short", kind: lines,
				tells:   "Where nobody tells a container's CPU time, in a second.",
				queries: []query{{`topk(10, memprov:access_time_remote:per_cpu_second10m{@r})`, "{{job}} ({{memprov_access_method}})"}},
			},
		}},
		{"Samples", []panel{
			{
				title: "Equal samples in ten minutes", unit: "short", kind: lines,
				queries: []query{{`topk(10, memprov:access_effective_samples:ratio10m{@r, level="container"})`, "{{job}} ({{memprov_access_method}})"}},
			},
			{
				title: "Samples by what became of them", unit: "ops", kind: stacked,
				queries: []query{{`sum by (memprov_access_outcome) (rate(memprov_access_samples_total{@r}[$__rate_interval]))`, "{{memprov_access_outcome}}"}},
			},
			{
				title: "Latency of sampled accesses, in cycles", unit: "short", kind: lines,
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(memprov_access_latency_bucket{@r}[$__rate_interval])))`, "median"},
					{`histogram_quantile(0.99, sum by (le) (rate(memprov_access_latency_bucket{@r}[$__rate_interval])))`, "99 %"},
				},
			},
		}},
	},
}
