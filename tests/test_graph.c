/* Graphs made into lifetimes: drawn by hand, and random ones against what follows from every single read and write. */
#include "test.h"
#include "../examples/parts/graph.h"

enum { GRAPH_NODES = 40, GRAPH_EDGES = 120 };
typedef struct graph_case { graph_node node[GRAPH_NODES]; graph_edge edge[GRAPH_EDGES]; graph g; } graph_case;

static void graph_begin(graph_case *c, size_t nodes, size_t bytes) {
    size_t i;
    memset(c, 0, sizeof *c);
    for (i = 0; i < nodes; ++i) c->node[i].bytes = c->node[i].grad_bytes = bytes + i;
    c->g.nodes = c->node; c->g.node_count = nodes; c->g.edges = c->edge;
}
static void graph_link(graph_case *c, size_t from, size_t to) {
    c->edge[c->g.edge_count].from = from; c->edge[c->g.edge_count++].to = to;
}
/* x -> sigmoid -> times weights -> loss. The sigmoid reads its output, the product its inputs, the loss neither. */
static void graph_by_hand(void) {
    graph_case c; memopt_plan_item item[8]; graph_use use[4]; size_t count = 9;
    graph_begin(&c, 4, 64);
    graph_link(&c, 0, 1); graph_link(&c, 1, 2); graph_link(&c, 2, 3);
    c.node[0].grad_bytes = 0; c.node[1].reads_output = 1; c.node[2].reads_inputs = 1; c.node[3].bytes = 0;
    CHECK(graph_to_plan(&c.g, item, 8, &count, use) == MEMOPT_OK && count == 6);
    CHECK(use[0].value_item == 0 && use[0].grad_item == SIZE_MAX && use[0].last_read == 1 && !use[0].last_read_is_backward);
    CHECK(item[0].first == 0 && item[0].last == 2 && item[0].size == 64 && item[0].alignment == 64 && !item[0].fixed && !item[0].in_place_of);
    CHECK(use[1].last_read == 1 && use[1].last_read_is_backward && item[use[1].value_item].first == 1 && item[use[1].value_item].last == 7);
    CHECK(item[use[1].grad_item].first == 5 && item[use[1].grad_item].last == 7 && use[1].first_grad == 2); /* backward 2 is at 5, 1 at 6 */
    CHECK(use[2].last_read == 3 && !use[2].last_read_is_backward && item[use[2].value_item].last == 4);
    CHECK(item[use[2].grad_item].first == 4 && item[use[2].grad_item].last == 6);
    CHECK(use[3].value_item == SIZE_MAX && use[3].first_grad == 3 && item[use[3].grad_item].first == 4 && item[use[3].grad_item].last == 5);
    CHECK(graph_to_plan(&c.g, item, 5, &count, NULL) == MEMOPT_ERR_BUFFER && count == 6);
    CHECK(graph_to_plan(&c.g, NULL, 0, &count, use) == MEMOPT_ERR_BUFFER && count == 6);
}
static void graph_random(graph_case *c, uint64_t *seed) {
    const size_t n = 1 + test_below(seed, GRAPH_NODES), reach = 1 + test_below(seed, n), edges = test_below(seed, GRAPH_EDGES); size_t i;
    graph_begin(c, n, 1000);
    for (i = 0; i < n; ++i) {
        if (!test_below(seed, 6)) c->node[i].bytes = 0;
        if (!test_below(seed, 6)) c->node[i].grad_bytes = 0;
        c->node[i].reads_output = (int)test_below(seed, 2); c->node[i].reads_inputs = (int)test_below(seed, 2);
    }
    for (i = 0; i < edges && n > 1; ++i) {
        const size_t from = test_below(seed, n - 1);
        graph_link(c, from, memopt_i_min(n - 1, from + 1 + (test_below(seed, 5) ? 0 : test_below(seed, reach))));
    }
}
static void graph_touch(memopt_plan_item *item, size_t time) {
    if (!item->size || time < item->first) item->first = time;
    if (!item->size || time + 1 > item->last) item->last = time + 1;
    item->size = 1;
}
/* Every single read and write of a pass, one after the other. */
static void graph_plans(void) {
    static memopt_plan_item item[2 * GRAPH_NODES], value[GRAPH_NODES], grad[GRAPH_NODES]; static graph_use use[GRAPH_NODES];
    graph_case c; uint64_t seed;
    for (seed = 1; seed <= 3000; ++seed) {
        uint64_t random = seed; size_t i, k, count = 0, items = 0;
        graph_random(&c, &random);
        const size_t n = c.g.node_count;
        CHECK(graph_to_plan(&c.g, item, 2 * GRAPH_NODES, &count, use) == MEMOPT_OK);
        memset(value, 0, sizeof value); memset(grad, 0, sizeof grad);
        for (i = 0; i < n; ++i) { /* forwards */
            graph_touch(&value[i], i);
            for (k = 0; k < c.g.edge_count; ++k) if (c.edge[k].to == i) graph_touch(&value[c.edge[k].from], i);
        }
        for (i = n; i-- > 0;) { /* backwards */
            const size_t time = 2 * n - 1 - i;
            graph_touch(&grad[i], time);
            if (c.node[i].reads_output) graph_touch(&value[i], time);
            for (k = 0; k < c.g.edge_count; ++k) if (c.edge[k].to == i) {
                graph_touch(&grad[c.edge[k].from], time);
                if (c.node[i].reads_inputs) graph_touch(&value[c.edge[k].from], time);
            }
        }
        for (i = 0; i < n; ++i) {
            const graph_use *u = &use[i]; const size_t last = value[i].last - 1;
            CHECK_AT((u->value_item != SIZE_MAX) == (c.node[i].bytes != 0) && (u->grad_item != SIZE_MAX) == (c.node[i].grad_bytes != 0), (int)seed);
            items += (size_t)(u->value_item != SIZE_MAX) + (size_t)(u->grad_item != SIZE_MAX);
            if (u->value_item < count) CHECK_AT(item[u->value_item].first == value[i].first && item[u->value_item].last == value[i].last && item[u->value_item].size == c.node[i].bytes, (int)seed);
            if (u->grad_item < count) CHECK_AT(item[u->grad_item].first == grad[i].first && item[u->grad_item].last == grad[i].last && item[u->grad_item].size == c.node[i].grad_bytes, (int)seed);
            CHECK_AT(u->last_read == (last < n ? last : 2 * n - 1 - last) && u->last_read_is_backward == (last >= n), (int)seed);
            CHECK_AT(u->first_grad == 2 * n - 1 - grad[i].first, (int)seed);
        }
        CHECK_AT(items == count, (int)seed);
    }
}
/* x -> linear -> relu -> linear -> loss, all that runs as nodes: the relu works in place, and so does its backward. */
static void graph_explicit(void) {
    graph_case c; memopt_plan_item item[16]; graph_use use[16]; size_t count = 0; memopt_plan_result r;
    graph_begin(&c, 8, 0);
    enum { X, HIDDEN, RELU, LAST, D_LAST, D_RELU, D_HIDDEN, D_X };
    graph_link(&c, X, HIDDEN); graph_link(&c, HIDDEN, RELU); graph_link(&c, RELU, LAST); graph_link(&c, LAST, D_LAST); /* the loss: its gradient over its input */
    graph_link(&c, D_LAST, D_RELU); graph_link(&c, RELU, D_RELU); graph_link(&c, D_RELU, D_HIDDEN); graph_link(&c, RELU, D_HIDDEN); graph_link(&c, D_HIDDEN, D_X); graph_link(&c, X, D_X);
    for (size_t i = 0; i < 8; ++i) { c.node[i].bytes = i == LAST || i == D_LAST ? 64 : 640; c.node[i].grad_bytes = 0; }
    c.node[X].bytes = c.node[D_X].bytes = 320;
    c.node[RELU].in_place = c.node[D_LAST].in_place = c.node[D_HIDDEN].in_place = 1;
    CHECK(graph_to_plan(&c.g, item, 16, &count, use) == MEMOPT_OK && count == 8);
    CHECK(item[RELU].in_place_of == 1 + HIDDEN && item[D_LAST].in_place_of == 1 + LAST && item[D_HIDDEN].in_place_of == 1 + D_RELU);
    CHECK(!item[X].in_place_of && !item[HIDDEN].in_place_of && !item[LAST].in_place_of && !item[D_RELU].in_place_of && !item[D_X].in_place_of);
    CHECK(item[RELU].first == RELU && item[RELU].last == D_HIDDEN + 1 && item[D_HIDDEN].last == D_X + 1 && item[X].last == D_X + 1);
    CHECK(memopt_plan_solve(item, count, NULL, NULL, &r) == MEMOPT_OK && r.peak == 320 + 640 + 640 + 64);
    CHECK(graph_to_plan(&c.g, NULL, 0, &count, NULL) == MEMOPT_ERR_BUFFER && count == 8);
    item[5].in_place_of = 77; /* beyond what it is given */
    CHECK(graph_to_plan(&c.g, item, 5, &count, NULL) == MEMOPT_ERR_BUFFER && count == 8 && item[5].in_place_of == 77 && item[D_LAST].in_place_of == 1 + LAST);
    c.node[HIDDEN].reads_output = 1; /* its backward reads it: then it is not to be written over */
    CHECK(graph_to_plan(&c.g, item, 16, &count, use) == MEMOPT_OK && !item[RELU].in_place_of);
}
/* An executor: who wrote each unit of memory last. Nodes run in order, then backwards in reverse where there are any. A value
   that is read must be there whole; what is written lies beside all that is read, or, in place, right on one of it. */
enum { GRAPH_UNIT = 64, GRAPH_ROOM = 4096 };
typedef struct graph_run { const graph_case *c; const memopt_plan_item *item; const graph_use *use; size_t owner[GRAPH_ROOM], at, overs; } graph_run;
static int graph_is_there(const graph_run *r, size_t item, size_t owner) {
    size_t i;
    if (item == SIZE_MAX) return 1;
    for (i = 0; i < r->item[item].size; ++i) if (r->owner[r->item[item].offset / GRAPH_UNIT + i / GRAPH_UNIT] != owner) return 0;
    return 1;
}
static void graph_write(graph_run *r, size_t item, size_t owner) {
    size_t i;
    for (i = 0; item != SIZE_MAX && i < r->item[item].size; ++i) r->owner[r->item[item].offset / GRAPH_UNIT + i / GRAPH_UNIT] = owner;
}
static int graph_apart(const graph_run *r, size_t a, size_t b) {
    const memopt_plan_item *x, *y;
    if (a == SIZE_MAX || b == SIZE_MAX) return 1;
    x = &r->item[a]; y = &r->item[b];
    return x->offset + x->size <= y->offset || y->offset + y->size <= x->offset;
}
static int graph_forward(graph_run *r, size_t t) { /* owners: 1 + 2 t a value, 2 + 2 t a gradient */
    const graph_case *c = r->c; const size_t own = r->use[t].value_item; size_t k, over = SIZE_MAX;
    for (k = 0; k < c->g.edge_count; ++k) {
        const size_t from = c->edge[k].from, its = r->use[from].value_item;
        if (c->edge[k].to != t) continue;
        if (!graph_is_there(r, its, 1 + 2 * from)) return 0;
        if (graph_apart(r, own, its)) continue;
        if (!c->node[t].in_place || r->item[own].offset != r->item[its].offset || r->item[own].size != r->item[its].size) return 0;
        if (over != SIZE_MAX && over != from) return 0;
        over = from; ++r->overs;
    }
    graph_write(r, own, 1 + 2 * t);
    return 1;
}
static int graph_backward(graph_run *r, size_t t) {
    const graph_case *c = r->c; const size_t own = r->use[t].grad_item; size_t k;
    if (r->use[t].first_grad == t) graph_write(r, own, 2 + 2 * t); /* that of a loss: it begins here */
    for (k = 0; k < c->g.edge_count; ++k) /* zeroed before the first addend */
        if (c->edge[k].to == t && r->use[c->edge[k].from].first_grad == t) graph_write(r, r->use[c->edge[k].from].grad_item, 2 + 2 * c->edge[k].from);
    if (!graph_is_there(r, own, 2 + 2 * t) || (c->node[t].reads_output && !graph_is_there(r, r->use[t].value_item, 1 + 2 * t))) return 0;
    for (k = 0; k < c->g.edge_count; ++k) {
        const size_t from = c->edge[k].from;
        if (c->edge[k].to != t) continue;
        if (c->node[t].reads_inputs && !graph_is_there(r, r->use[from].value_item, 1 + 2 * from)) return 0;
        if (!graph_is_there(r, r->use[from].grad_item, 2 + 2 * from)) return 0;
    }
    return 1;
}
static memopt_plan_result graph_plan(const graph_case *c, memopt_plan_item *item, graph_use *use, uint64_t seed) {
    static graph_run r; size_t count = 0, t, i; memopt_plan_result p; memopt_plan_options o;
    memset(&p, 0, sizeof p); memset(&o, 0, sizeof o); memset(&r, 0, sizeof r);
    o.work = 20000;
    CHECK_AT(graph_to_plan(&c->g, item, 4 * GRAPH_NODES, &count, use) == MEMOPT_OK, (int)seed);
    CHECK_AT(memopt_plan_solve(item, count, &o, NULL, &p) == MEMOPT_OK && p.peak <= GRAPH_ROOM * GRAPH_UNIT, (int)seed);
    r.c = c; r.item = item; r.use = use;
    for (t = 0; t < c->g.node_count; ++t) CHECK_AT(graph_forward(&r, t), (int)seed);
    for (t = c->g.node_count; t-- > 0;) CHECK_AT(graph_backward(&r, t), (int)seed);
    for (i = 0; i < count; ++i) if (item[i].in_place_of) CHECK_AT(item[i].size == item[item[i].in_place_of - 1].size && item[i].first + 1 == item[item[i].in_place_of - 1].last, (int)seed);
    return p;
}
/* The same graph with nodes for its backwards: what a gradient is before its first addend, then what adds to it. */
static void graph_unfold(const graph_case *c, graph_case *out) {
    const size_t n = c->g.node_count; size_t place[GRAPH_NODES], t, k, at = n;
    graph_begin(out, n, 0);
    for (t = 0; t < n; ++t) { out->node[t] = c->node[t]; out->node[t].grad_bytes = 0; out->node[t].reads_output = out->node[t].reads_inputs = 0; }
    for (k = 0; k < c->g.edge_count; ++k) graph_link(out, c->edge[k].from, c->edge[k].to);
    for (t = 0; t < n; ++t) place[t] = 0;
    for (t = n; t-- > 0;) {
        size_t begun[GRAPH_NODES], count = 0;
        if (!place[t]) begun[count++] = t;
        for (k = 0; k < c->g.edge_count; ++k) if (c->edge[k].to == t && !place[c->edge[k].from]) { begun[count++] = c->edge[k].from; place[c->edge[k].from] = 1; }
        for (k = 0; k < count; ++k) { out->node[at].bytes = c->node[begun[k]].grad_bytes; place[begun[k]] = at++; }
        out->node[at].bytes = 0; /* the backward of t */
        graph_link(out, place[t], at);
        if (c->node[t].reads_output) graph_link(out, t, at);
        for (k = 0; k < c->g.edge_count; ++k) if (c->edge[k].to == t) {
            graph_link(out, place[c->edge[k].from], at);
            if (c->node[t].reads_inputs) graph_link(out, c->edge[k].from, at);
        }
        ++at;
    }
    out->g.node_count = at;
}
static void graph_executed(void) {
    static memopt_plan_item item[4 * GRAPH_NODES]; static graph_use use[GRAPH_NODES]; static graph_case c, all; uint64_t seed; size_t saved = 0, taken = 0, both = 0;
    for (seed = 1; seed <= 1500; ++seed) {
        uint64_t random = seed * 7; size_t i, k, n; memopt_plan_result plain, mirrored, explicit_;
        do graph_random(&c, &random); while (c.g.node_count > 10 || c.g.edge_count > 20);
        n = c.g.node_count;
        for (i = 0; i < n; ++i) {
            if (c.node[i].bytes) c.node[i].bytes = GRAPH_UNIT * (1 + test_below(&random, 2));
            if (c.node[i].grad_bytes) c.node[i].grad_bytes = GRAPH_UNIT * (1 + test_below(&random, 3));
            c.node[i].reads_output = !test_below(&random, 4); c.node[i].reads_inputs = !test_below(&random, 4);
        }
        plain = graph_plan(&c, item, use, seed);
        for (i = 0; i < n; ++i) c.node[i].in_place = test_below(&random, 4) != 0;
        mirrored = graph_plan(&c, item, use, seed);
        for (k = 0, i = 0; i < 2 * n; ++i) k += use[i / 2].value_item != SIZE_MAX && i % 2 && item[use[i / 2].value_item].in_place_of;
        taken += k;
        saved += mirrored.peak < plain.peak;
        CHECK_AT(mirrored.lower_bound <= plain.lower_bound && (!plain.optimal || !mirrored.optimal || mirrored.peak <= plain.peak), (int)seed);
        graph_unfold(&c, &all);
        explicit_ = graph_plan(&all, item, use, seed);
        CHECK_AT(explicit_.lower_bound == mirrored.lower_bound, (int)seed);
        if (explicit_.optimal && mirrored.optimal) { ++both; CHECK_AT(explicit_.peak == mirrored.peak, (int)seed); }
        CHECK_AT(explicit_.peak <= mirrored.peak || !explicit_.optimal, (int)seed);
        for (i = n; i < all.g.node_count; ++i) all.node[i].in_place = (int)test_below(&random, 2); /* nodes for backwards may, too */
        for (i = 0; i < all.g.node_count; ++i) if (!all.node[i].bytes && test_below(&random, 2)) all.node[i].bytes = GRAPH_UNIT * (1 + test_below(&random, 3));
        (void)graph_plan(&all, item, use, seed);
    }
    CHECK(saved > 10 && taken > 300 && both > 1000);
}
#define GRAPH_SAYS(change, want, text) do { graph_case c = good; size_t a = 7; memset(&e, 0, sizeof e); \
    c.g.nodes = c.node; c.g.edges = c.edge; c.g.error = &e; change; \
    CHECK(graph_to_plan(&c.g, item, 16, &a, NULL) == MEMOPT_ERR_##want && a == 7 && test_error_says(e, MEMOPT_ERR_##want, text)); } while (0)
static void graph_refusals(void) {
    graph_case good; size_t n = 7; memopt_plan_item item[16]; memopt_error e;
    graph_begin(&good, 4, 64);
    graph_link(&good, 0, 1); graph_link(&good, 1, 3);
    GRAPH_SAYS(c.g.node_count = 0, ARGUMENT, "graph: node_count is 0");
    GRAPH_SAYS(c.g.nodes = NULL, ARGUMENT, "graph: nodes is NULL");
    GRAPH_SAYS(c.g.edges = NULL, ARGUMENT, "graph: edges is NULL");
    GRAPH_SAYS(c.edge[1].to = 4, ARGUMENT, "graph: to is not below node_count at edge 1");
    GRAPH_SAYS(c.edge[1].from = 3, ARGUMENT, "graph: from is not below to at edge 1");
    GRAPH_SAYS(c.edge[0].from = SIZE_MAX, ARGUMENT, "graph: from is not below to at edge 0");
    GRAPH_SAYS(c.g.node_count = SIZE_MAX, OVERFLOW, "graph: it has more nodes or edges than can be told apart");
    CHECK(graph_to_plan(NULL, item, 16, &n, NULL) == MEMOPT_ERR_ARGUMENT);
    good.g.nodes = good.node; good.g.edges = good.edge; good.g.error = &e;
    CHECK(graph_to_plan(&good.g, NULL, 16, &n, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "graph: items is NULL"));
    CHECK(graph_to_plan(&good.g, item, 16, NULL, NULL) == MEMOPT_ERR_ARGUMENT && test_error_says(e, MEMOPT_ERR_ARGUMENT, "graph: count is NULL"));
    CHECK(n == 7);
    graph_link(&good, 0, 3);
    CHECK(graph_to_plan(&good.g, item, 3, &n, NULL) == MEMOPT_ERR_BUFFER && test_error_says(e, MEMOPT_ERR_BUFFER, "graph: capacity is below the items' count") && n == 8);
}

static void test_graph(void) {
    RUN(graph_by_hand); RUN(graph_plans); RUN(graph_explicit); RUN(graph_executed); RUN(graph_refusals);
}
#ifndef TEST_COMBINED
int main(void) { test_graph(); return test_totals(); }
#endif
