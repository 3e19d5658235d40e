package main

const (
	// Why panels of samples may be empty.
	unsampled = "Told of hosts only on which accesses are sampled (access.pmu)"
	// Why panels of places may be empty.
	oneNode = "Told of hosts with several NUMA nodes only"
	// Tables of owners want owners.
	owned = ", where export.detail tells owners"
)

var numa = board{
	name:  "numa",
	title: "memprov: NUMA",
	tells: "Which share of the time of sampled accesses goes to another node, and on which nodes memory lies. It needs the rules of dashboards/rules.",
	rows: []row{
		{"Services", []panel{
			{
				title: "Remote share of access time, at least", unit: "percentunit", kind: lines, empty: unsampled,
				tells:   "Lower end of the 95 % interval; none below 100 equal samples in ten minutes.",
				queries: []query{{`topk(10, memprov:access_remote_share_lower:ratio10m{@r, level="container"})`, "{{job}} ({{memprov_access_method}})"}},
			},
			{
				title: "Remote share of access time", unit: "percentunit", kind: lines, empty: unsampled,
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
				title: "Owners by remote time", unit: "short", kind: rows, empty: unsampled + owned,
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
				title: "Access time by locality, as the hardware says", unit: "percentunit", kind: stacked, empty: unsampled,
				queries: []query{{`sum by (memprov_numa_locality) (memprov:access_time:increase10m{@r, level="container", memprov_access_method="served"}) / ignoring (memprov_numa_locality) group_left () sum(memprov:access_time:increase10m{@r, level="container", memprov_access_method="served"})`, "{{memprov_numa_locality}}"}},
			},
			{
				title: "Access time by locality, as pages lie", unit: "percentunit", kind: stacked, empty: unsampled,
				queries: []query{{`sum by (memprov_numa_locality) (memprov:access_time:increase10m{@r, level="container", memprov_access_method="placement"}) / ignoring (memprov_numa_locality) group_left () sum(memprov:access_time:increase10m{@r, level="container", memprov_access_method="placement"})`, "{{memprov_numa_locality}}"}},
			},
			{
				title: "Remote cycles in a second of CPU time", unit: "short", kind: lines, empty: unsampled,
				tells:   "Where nobody tells a container's CPU time, in a second.",
				queries: []query{{`topk(10, memprov:access_time_remote:per_cpu_second10m{@r})`, "{{job}} ({{memprov_access_method}})"}},
			},
		}},
		{"Samples", []panel{
			{
				title: "Equal samples in ten minutes", unit: "short", kind: lines, empty: unsampled,
				queries: []query{{`topk(10, memprov:access_effective_samples:ratio10m{@r, level="container"})`, "{{job}} ({{memprov_access_method}})"}},
			},
			{
				title: "Samples by what became of them", unit: "ops", kind: stacked, empty: unsampled,
				queries: []query{{`sum by (memprov_access_outcome) (rate(memprov_access_samples_total{@r}[$__rate_interval]))`, "{{memprov_access_outcome}}"}},
			},
			{
				title: "Latency of sampled accesses, in cycles", unit: "short", kind: lines, empty: unsampled,
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(memprov_access_latency_bucket{@r}[$__rate_interval])))`, "median"},
					{`histogram_quantile(0.99, sum by (le) (rate(memprov_access_latency_bucket{@r}[$__rate_interval])))`, "99 %"},
				},
			},
		}},
		{"Placement: where memory lies and threads ran; what they accessed is not known", []panel{
			{
				title: "Resident memory by node", unit: "bytes", kind: stacked, empty: oneNode,
				tells:   "On hosts with several NUMA nodes, of what processes own; not of objects that several of them map. Unknown is what no reading proves to lie on a node.",
				queries: []query{{`sum by (memprov_numa_node) (memprov_memory_placed_bytes{@r})`, "node {{memprov_numa_node}}"}},
			},
			{
				title: "CPU time on other nodes than memory, by service, at least", unit: "percentunit", kind: lines, empty: oneNode,
				tells:   "Of all CPU time that is counted: where it is not known where memory lies, that adds nothing. As if each process accessed all its memory alike. Weaker than any sample of accesses.",
				queries: []query{{`topk(10, memprov:placement_remote_share:ratio10m{@r, level="container"})`, "{{job}}"}},
			},
		}},
		{"", []panel{
			{
				title: "Owners by node", unit: "bytes", kind: rows, empty: oneNode + owned,
				queries: []query{{`topk(50, sum by (job, ` + owner + `, memprov_numa_node) (memprov_memory_placed_bytes{@r, memprov_owner_id!=""}))`, "Resident"}},
			},
			{
				title: "Owners by CPU time on other nodes, at least", unit: "short", kind: rows, empty: oneNode + owned,
				tells: "Of the last ten minutes, in seconds: of an owner as much of its process' time as it has of the bytes. The share is of all of its time that is counted, wherever its memory lies.",
				queries: []query{
					{`topk(50, sum by (job, ` + owner + `) (memprov:placement_time_remote:increase10m{@r, level="owner"}))`, "Seconds"},
					{`sum by (job, ` + owner + `) (memprov:placement_time_remote:increase10m{@r, level="owner"}) / sum by (job, ` + owner + `) (memprov:placement_time_counted:increase10m{@r, level="owner"})`, "Share"},
				},
			},
		}},
	},
}
