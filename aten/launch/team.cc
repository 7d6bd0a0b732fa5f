// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/team.h"

#include <ATen/Parallel.h>

// Functions of the OpenMP and MKL libraries that torch uses. The dynamic linker finds them whatever
// the libraries are called. They are weak, because torch may be built without OpenMP or MKL. This
// code is compiled without -fopenmp.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int);
// OpenMP 5.0; the argument is omp_pause_soft.
[[gnu::weak]] int omp_pause_resource_all(int);
// MKL's thread-local setting overrides the process-wide setting of torch.set_num_threads. The value
// 0 removes the thread-local setting.
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
    (void)omp_pause_resource_all(kPauseSoft);  // fails in a parallel region, which keeps the team
  }
}

// Here and below, at::get_num_threads() is called before OpenMP, so that torch applies its own
// setting to this thread now. Otherwise torch would apply it in the first parallel region and
// override ours.
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
