/* frontier.h - what --advise does: the advice is told, then what it would be for less memory, as lines and as a page; with
   --frontier those plans are trained, too. */
#ifndef GPT_FRONTIER_H
#define GPT_FRONTIER_H

/* Of the figures that --json writes; 0: it is not there. */
static double frontier_figure(const char *json, const char *name) {
    char key[64];
    const char *at;

    snprintf(key, sizeof key, "\"%s\": ", name);
    at = strstr(json, key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

/* The program, started anew with the switches of a plan: its memory is what whoever runs that command will see. */
static void frontier_exec(const options *plan, int to) {
    options o = *plan;
    char path[32], list[1000];
    char *argv[2 * SWITCHES + 2] = { 0 };
    size_t n = 0;

    snprintf(path, sizeof path, "/dev/fd/%d", to);
    o.json = path;
    o.quiet = 1;
    options_list(&o, "\n", list, sizeof list);
    argv[n++] = (char *)(uintptr_t) "train_gpt";
    for (argv[n] = strtok(list, "\n"); argv[n]; argv[n] = strtok(NULL, "\n")) ++n;
    if (freopen("/dev/null", "w", stdout)) execv("/proc/self/exe", argv);
    _exit(1);
}

/* What it took, into p; 1: it came to nothing, and said why. */
static int frontier_run(const options *plan, double tokens, frontier_point *p) {
    int to[2], status = 1;
    pid_t child;
    static char json[1 << 20];
    size_t got = 0;
    ssize_t n;

    if (pipe(to)) return 1;
    fflush(NULL);
    child = fork();
    if (!child) {
        close(to[0]);
        frontier_exec(plan, to[1]);
    }
    close(to[1]);
    while (child > 0 && got < sizeof json - 1 && (n = read(to[0], json + got, sizeof json - 1 - got)) > 0)
        got += (size_t)n;
    json[got] = 0;
    close(to[0]);
    if (child > 0) (void)waitpid(child, &status, 0);
    p->measured_bytes = frontier_figure(json, "measured_peak_bytes");
    p->measured_speed = tokens / frontier_figure(json, "cpu_seconds_per_step");
    return status || !(p->measured_bytes > 0);
}

/* Prints the rows, trains them where that is asked for, and draws both. */
static int frontier_tell(const adviser *a, const advised *rows, size_t count) {
    frontier shown = { 0 };
    options o = a->asked;
    char about[400];
    size_t i;
    int wrong = 0;
    const double tokens = (double)(a->asked.batch * (a->asked.ranks ? a->asked.units : a->asked.accumulate)
                                   * (a->asked.context + (is_vit(&a->asked) ? 1 : 0)));

    printf("\n%-12s %10s %12s %10s  %s\n", "predicted MB", "tokens/s", a->asked.frontier ? "measured MB" : "",
           a->asked.frontier ? "tokens/s" : "",
           a->s ? "with less memory; tokens of a CPU second" : "with less memory: --speeds FILE tells its speed");
    for (i = 0; i < count && !wrong; ++i) {
        frontier_point *p = &shown.of[i];
        char text[400];
        options row = rows[i].o;

        options_advised(&row);
        row.json = NULL;
        options_describe(&row, text, sizeof text);
        p->predicted_bytes = (double)rows[i].peak;
        if (rows[i].seconds > 0) p->predicted_speed = tokens / rows[i].seconds;
        if (a->asked.frontier && (wrong = frontier_run(&row, tokens, p)) != 0) {
            snprintf(a->message, a->capacity, "--frontier: a training came to nothing, see above: %.80s %.300s",
                     a->asked.program, text);
            break;
        }
        printf("%-12.1f ", p->predicted_bytes / 1e6);
        if (p->predicted_speed > 0) printf("%10.1f ", p->predicted_speed);
        else printf("%10s ", "-");
        if (a->asked.frontier) printf("%12.1f %10.1f  %s\n", p->measured_bytes / 1e6, p->measured_speed, text);
        else printf("%12s %10s  %s\n", "", "", text);
        fflush(stdout);
        snprintf(p->switches, sizeof p->switches, "%s", text);
    }
    options_advised(&o);
    o.json = NULL;
    options_describe(&o, about, sizeof about);
    shown.about = about;
    shown.count = count;
    if (wrong || !a->s || was_given(&a->asked, ON_DRY_RUN)) return wrong;
    (void)mkdir("build", 0777);
    if (!frontier_write("build/frontier.html", &shown)) {
        puts("build/frontier.html shows it.");
        return 0;
    }
    snprintf(a->message, a->capacity, "build/frontier.html could not be written; is this folder writable?");
    return 1;
}

/* ---- what --advise does ---- */
static int advise_with(adviser *a, options *o, double *seconds) {
    static advised rows[FRONTIER];
    advised best;
    size_t count;

    memset(&best, 0, sizeof best);
    if (advise(a, &best) || advise_frontier(a, &best, rows, &count) || frontier_tell(a, rows, count)) return 1;
    *o = best.o;
    *seconds = best.seconds;
    return 0;
}

/* 0: *o is the advice, for a process that has *known beside the arena. */
static int advise_open(options *o, beside *known, outcome *out) {
    adviser a;
    memopt_thread_pool *pool = NULL;
    memopt_threads threads;
    memopt_ops ops;
    int wrong;

    speeds *s = NULL;
    const int keeps = !was_given(o, ON_DRY_RUN); /* a dry run measures what it has to, and writes nothing */
    memset(&a, 0, sizeof a);
    memset(&threads, 0, sizeof threads);
    a.asked = *o;
    a.ops = &ops;
    a.message = out->message;
    a.capacity = sizeof out->message;
    wrong = open_ops(o, &pool, &threads, &ops, out->message, sizeof out->message);
    touch_stacks(ops.threads);
    if (!wrong)
        wrong = look_beside(o, &ops, &a.b, a.message, a.capacity); /* before there is anything that training has not */
    if (!wrong && o->speeds) {
        a.s = s = (speeds *)calloc(1, sizeof *s);
        wrong = !s || speeds_open(o->speeds, s, keeps, a.message, a.capacity);
        if (!s) snprintf(a.message, a.capacity, "No memory for --speeds.");
    }
    if (!wrong) wrong = advise_with(&a, o, &out->predicted_seconds);
    if (s && s->count && keeps)
        wrong |= speeds_close(a.asked.speeds, s, a.message, a.capacity); /* what has been measured is kept */
    *known = a.b;
    memopt_thread_pool_destroy(pool);
    free(s);
    return wrong;
}
#endif
