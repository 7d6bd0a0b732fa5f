// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/team.h"

#include <ATen/Parallel.h>

// Of the libraries that torch itself uses, whatever their files are called in this build of it;
// weak, because one without OpenMP or MKL is possible. No code here is compiled with -fopenmp.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int);
// OpenMP 5.0; the argument is omp_pause_soft.
[[gnu::weak]] int omp_pause_resource_all(int);
// MKL's setting for one thread goes before the process-wide one, which torch.set_num_threads makes;
// 0 takes it away.
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace openreg {
namespace {

void set_threads(int openmp, int mkl) {
  if (omp_set_num_threads != nullptr) {
    omp_set_num_threads(openmp);
  }
  if (MKL_Set_Num_Threads_Local != nullptr) {
    (void)MKL_Set_Num_Threads_Local(mkl);
  }
}

}  // namespace

int team_size() { return at::get_num_threads(); }

void yield_team() {
  constexpr unsigned kEach = 8;
  constexpr int kPauseSoft = 1;
  thread_local unsigned launches = 0;
  if (launches++ % kEach == 0 && omp_pause_resource_all != nullptr) {
    (void)omp_pause_resource_all(kPauseSoft);  // refuses within a parallel region: then it stays
  }
}

// Asking torch rather than OpenMP, here and below, has torch make its own setting for this thread
// now; else it did so in the first parallel region, against ours.
void set_team(int threads) {
  thread_local int current = 0;
  if (current != threads) {
    (void)at::get_num_threads();
    set_threads(threads, threads);
    current = threads;
  }
}

TeamScope::TeamScope(int threads) : previous_(at::get_num_threads()), threads_(threads) {
  if (previous_ != threads_) {
    set_threads(threads_, threads_);
  }
}

TeamScope::~TeamScope() {
  if (previous_ != threads_) {
    set_threads(previous_, 0);
  }
}

}  // namespace openreg
