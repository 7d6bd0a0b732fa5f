// SPDX-License-Identifier: BSD-3-Clause
#include "aten/team.h"

#include <ATen/Parallel.h>

// Of the libraries that torch itself uses, whatever their files are called in this build of it;
// weak, because one without OpenMP or MKL is possible. No code here is compiled with -fopenmp.
extern "C" {
[[gnu::weak]] int omp_get_max_threads(void);
[[gnu::weak]] void omp_set_num_threads(int);
// MKL's setting for one thread goes before the process-wide one, which torch.set_num_threads makes;
// 0 takes it away.
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace openreg {
namespace {

void set_threads(int openmp, int mkl) {
  omp_set_num_threads(openmp);
  if (MKL_Set_Num_Threads_Local != nullptr) {
    (void)MKL_Set_Num_Threads_Local(mkl);
  }
}

}  // namespace

int team_size() { return at::get_num_threads(); }

TeamScope::TeamScope(int threads)
    : previous_(omp_get_max_threads != nullptr ? omp_get_max_threads() : threads),
      threads_(threads) {
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
