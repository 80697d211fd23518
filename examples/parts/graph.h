/* graph.h - lifetimes for memopt_plan_solve() of an engine's graph, whose nodes run in a given order.

   What it does   Nodes stand in the order in which their forwards run; edges say who reads whose value. Nothing is
                  recomputed. Everything follows from one number a node, the last node that reads its value: a value
                  dies with its last reader; a gradient is born in the backward of that reader, the first of its
                  readers' backwards.
   How to use     Fill in a graph, call graph_to_plan(), and plan the items: see adopt/gru_1_plan.c.
   What it costs  Time linear in nodes and edges; 16 bytes a node while the call runs. */
#ifndef PARTS_GRAPH_H
#define PARTS_GRAPH_H
#include <stdlib.h>
#include <string.h>
#include "refuse.h"
#if defined(__cplusplus) && defined(__GNUC__) /* casts are C's, also in an engine that warns of them */
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

typedef struct graph_node { /* zero it, then set what it has */
    size_t bytes;         /* its value; 0: none to be placed, such as weights */
    size_t grad_bytes;    /* the gradient of its value; 0: none */
    int    reads_output;  /* 1: its backward reads its own value, as that of a sigmoid does */
    int    reads_inputs;  /* 1: its backward reads what its forward has read, as that of a product does */
    int    in_place;      /* 1: its forward may overwrite what it reads, as that of an activation may, element by
                             element: graph_to_plan() finds which value */
} graph_node;

typedef struct graph_edge { /* the forward of `to` reads the value of `from`, and its backward adds to the */
    size_t from, to;        /* gradient of `from`; from < to */
} graph_edge;

typedef struct graph {
    const graph_node *nodes;
    size_t            node_count;
    const graph_edge *edges;      /* in any order; NULL when there are none */
    size_t            edge_count;
    memopt_error     *error;      /* NULL, or filled in when a call fails */
} graph;

typedef struct graph_use { /* of a node, in a pass of forwards in order, then backwards in reverse order */
    size_t value_item, grad_item; /* which plan item is its value, which its gradient; SIZE_MAX: none */
    size_t last_read;  /* the node whose forward or backward is the last to read the value: it may be freed then */
    int    last_read_is_backward;
    size_t first_grad; /* the node in whose backward its gradient gets its first addend: zero it right before that, or
                          let that backward overwrite it. The node itself where nobody reads its value: a loss */
} graph_use;

typedef struct graph_walk {
    const graph *of;
    size_t *last;     /* of each node: the last that reads its value; itself when nobody does */
    size_t *backward; /* the last backward that reads it; SIZE_MAX: none */
} graph_walk;

static inline memopt_status graph_refuse_edge(memopt_error *error, size_t edge, const char *argument,
                                              const char *reason) {
    (void)part_refuse(error, "graph", MEMOPT_ERR_ARGUMENT, argument, reason);
    if (error) {
        error->place = "edge";
        error->index = edge;
    }
    return MEMOPT_ERR_ARGUMENT;
}

static inline memopt_status graph_check(const graph *g) {
    size_t i;

    if (!g->node_count) return part_refuse(g->error, "graph", MEMOPT_ERR_ARGUMENT, "node_count", "is 0");
    if (g->node_count > UINT32_MAX / 2 || g->edge_count > UINT32_MAX)
        return part_refuse(g->error, "graph", MEMOPT_ERR_OVERFLOW, NULL,
                           "it has more nodes or edges than can be told apart");
    if (!g->nodes) return part_refuse(g->error, "graph", MEMOPT_ERR_ARGUMENT, "nodes", "is NULL");
    if (!g->edges && g->edge_count) return part_refuse(g->error, "graph", MEMOPT_ERR_ARGUMENT, "edges", "is NULL");
    for (i = 0; i < g->edge_count; ++i) {
        if (g->edges[i].to >= g->node_count) return graph_refuse_edge(g->error, i, "to", "is not below node_count");
        if (g->edges[i].from >= g->edges[i].to) return graph_refuse_edge(g->error, i, "from", "is not below to");
    }
    return MEMOPT_OK;
}

/* Who reads what last. Free w->last. */
static inline memopt_status graph_open(graph_walk *w, const graph *g) {
    const memopt_status status = graph_check(g);
    size_t i;

    if (status) return status;
    w->of = g;
    w->last = (size_t *)malloc(2 * g->node_count * sizeof *w->last);
    if (!w->last) return part_refuse(g->error, "graph", MEMOPT_ERR_MEMORY, NULL, "no memory for it");
    w->backward = w->last + g->node_count;
    for (i = 0; i < g->node_count; ++i) {
        w->last[i] = i;
        w->backward[i] = g->nodes[i].reads_output ? i : SIZE_MAX;
    }
    for (i = 0; i < g->edge_count; ++i) { /* of backwards the smallest node's runs last */
        const graph_edge *e = &g->edges[i];

        if (w->last[e->from] < e->to) w->last[e->from] = e->to;
        if (g->nodes[e->to].reads_inputs && w->backward[e->from] > e->to) w->backward[e->from] = e->to;
    }
    return MEMOPT_OK;
}

/* The next item, if it has bytes; returns its index. */
static inline size_t graph_item(memopt_plan_item *items, size_t capacity, size_t *count, size_t bytes, size_t first,
                                size_t last) {
    memopt_plan_item item;

    if (!bytes) return SIZE_MAX;
    memset(&item, 0, sizeof item);
    item.first = first;
    item.last = last + 1;
    item.size = bytes;
    item.alignment = 64;
    if (*count < capacity) items[*count] = item;
    return (*count)++;
}

static inline size_t graph_lifetimes(const graph_walk *w, memopt_plan_item *items, size_t capacity, graph_use *uses) {
    const graph *g = w->of;
    const size_t end = 2 * g->node_count - 1; /* the time of node t's backward is end - t */
    size_t count = 0;
    size_t i;

    for (i = 0; i < g->node_count; ++i) {
        const int back = w->backward[i] != SIZE_MAX;
        graph_use use;

        use.last_read = back ? w->backward[i] : w->last[i];
        use.last_read_is_backward = back;
        use.first_grad = w->last[i];
        use.value_item = graph_item(items, capacity, &count, g->nodes[i].bytes, i,
                                    back ? end - use.last_read : use.last_read);
        use.grad_item = graph_item(items, capacity, &count, g->nodes[i].grad_bytes, end - use.first_grad, end - i);
        if (uses) uses[i] = use;
        w->backward[i] = back ? SIZE_MAX : use.last_read; /* for what follows: the forward that it ends with, */
        w->last[i] = use.value_item;                      /* and its item */
    }
    return count;
}

/* Nodes that may write over what they read: each takes the first value of its size that ends with it. */
static inline void graph_in_place(const graph_walk *w, memopt_plan_item *items, size_t capacity) {
    const graph *g = w->of;
    size_t i;

    for (i = 0; i < g->edge_count; ++i) {
        const size_t from = g->edges[i].from, to = g->edges[i].to;

        if (!g->nodes[to].in_place || w->backward[from] != to || g->nodes[from].bytes != g->nodes[to].bytes) continue;
        if (w->last[to] < capacity && !items[w->last[to]].in_place_of)
            items[w->last[to]].in_place_of = w->last[from] + 1;
    }
}

/* A graph as lifetimes for memopt_plan_solve(): time t below node_count is the forward of node t, time
   2 * node_count - 1 - t its backward. A value lives until the last forward or backward that reads it, a gradient from
   its first addend to the backward of its node: often a fraction of what keeping everything takes. A node with in_place
   takes over, by in_place_of of its item, the bytes of a value of the same size that nobody reads later.

   Where backwards do not mirror the forwards, make them nodes as well, in the order in which they run: gradients are
   their values, everything they read has an edge to them, and no node has grad_bytes, reads_output or reads_inputs.
   Nothing else runs then, and in_place holds for gradients, too. What a node writes or adds to beside its own value is
   a node of its own before the first one that does so; it runs nothing, and has an edge to each node that writes, adds
   to or reads it.

   items, count  receive values and gradients that have bytes. Capacity 0 asks how many
   uses          node_count of them; NULL = not wanted
   returns       OK; ERR_ARGUMENT (no nodes, NULL, an edge to itself, backwards or beyond);
                 ERR_BUFFER (the count is set); ERR_OVERFLOW (2^32 nodes or edges), ERR_MEMORY. */
static inline memopt_status graph_to_plan(const graph *g, memopt_plan_item *items, size_t capacity, size_t *count,
                                          graph_use *uses) {
    memopt_status status;
    graph_walk w;

    if (!g) return MEMOPT_ERR_ARGUMENT;
    if (!items && capacity) return part_refuse(g->error, "graph", MEMOPT_ERR_ARGUMENT, "items", "is NULL");
    if (!count) return part_refuse(g->error, "graph", MEMOPT_ERR_ARGUMENT, "count", "is NULL");
    status = graph_open(&w, g);
    if (status) return status;
    *count = graph_lifetimes(&w, items, capacity, uses);
    graph_in_place(&w, items, capacity);
    free(w.last);
    if (*count <= capacity) return MEMOPT_OK;
    return part_refuse(g->error, "graph", MEMOPT_ERR_BUFFER, "capacity", "is below the items' count");
}

#if defined(__cplusplus) && defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif
#endif
