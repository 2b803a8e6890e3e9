// The peer of `cargo xtask bench comm`: collectives of any MPI. mpirun -n RANKS bench_mpi SECONDS OPERATION:BYTES ...
//
// Rank 0 prints a row for each case: OPERATION,RANKS,BYTES,ITERATIONS,LEAST,MEDIAN,P90 in microseconds, of the slowest rank each. The source is written anew
// before each iteration, and all ranks meet in a barrier.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int call(const char *operation, float *send, float *recv, int elements, int piece) {
    if (!strcmp(operation, "allreduce"))
        return MPI_Allreduce(send, recv, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (!strcmp(operation, "reduce_scatter"))
        return MPI_Reduce_scatter_block(send, recv, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (!strcmp(operation, "allgather"))
        return MPI_Allgather(send, piece, MPI_FLOAT, recv, piece, MPI_FLOAT, MPI_COMM_WORLD);
    if (!strcmp(operation, "bcast"))
        return MPI_Bcast(send, elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (!strcmp(operation, "alltoall"))
        return MPI_Alltoall(send, piece, MPI_FLOAT, recv, piece, MPI_FLOAT, MPI_COMM_WORLD);
    fprintf(stderr, "no operation %s\n", operation);
    return MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double seconds = atof(words[1]);
    double *times = malloc(MOST * sizeof *times), *slowest = malloc(MOST * sizeof *slowest);
    for (int at = 2; at < count; at++) {
        char operation[32];
        long bytes;
        if (sscanf(words[at], "%31[^:]:%ld", operation, &bytes) != 2)
            return MPI_Abort(MPI_COMM_WORLD, 2);
        int elements = (int)(bytes / 4), piece = elements / ranks, warm = bytes <= 65536 ? 50 : 3, stop = 0, done = 0;
        float *send, *recv;
        if (posix_memalign((void **)&send, 2 << 20, bytes + 4096) || posix_memalign((void **)&recv, 2 << 20, bytes + 4096))
            return MPI_Abort(MPI_COMM_WORLD, 3);
        memset(send, 0, bytes);
        memset(recv, 0, bytes);
        double started = MPI_Wtime();
        for (int iteration = 0; !stop && done < MOST; iteration++) {
            if (iteration == warm)
                started = MPI_Wtime();
            for (int i = 0; i < elements; i++)
                send[i] = (float)(rank + 1);
            MPI_Barrier(MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            call(operation, send, recv, elements, piece);
            double took = MPI_Wtime() - begun;
            if (iteration >= warm)
                times[done++] = took;
            if (bytes > 65536 || iteration % 64 == 0) {
                stop = done >= 6 && MPI_Wtime() - started > seconds;
                MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
            }
        }
        MPI_Reduce(times, slowest, done, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        int reduces = !strcmp(operation, "allreduce") || !strcmp(operation, "reduce_scatter");
        float expected = reduces ? ranks * (ranks + 1) / 2 : 1, *result = strcmp(operation, "bcast") ? recv : send;
        int looked_at = strcmp(operation, "bcast") && strcmp(operation, "allreduce") ? piece : elements;
        for (int i = 0; i < looked_at; i++)
            if (result[i] != expected) {
                fprintf(stderr, "%s: a wrong result\n", words[at]);
                return MPI_Abort(MPI_COMM_WORLD, 4);
            }
        if (rank == 0) {
            qsort(slowest, done, sizeof *slowest, by_size);
            double least = slowest[0] * 1e6, median = slowest[done / 2] * 1e6, p90 = slowest[done * 9 / 10] * 1e6;
            printf("%s,%d,%ld,%d,%.2f,%.2f,%.2f\n", operation, ranks, bytes, done, least, median, p90);
            fflush(stdout);
        }
        free(send);
        free(recv);
    }
    MPI_Finalize();
    return 0;
}
