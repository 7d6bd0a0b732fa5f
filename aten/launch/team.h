// SPDX-License-Identifier: BSD-3-Clause
//
// Teams: the number of threads that a kernel may use.
//
// libgomp keeps a team for each thread that ever ran a parallel region. When all teams together
// have more threads than there are cores, libgomp stops spinning, and every parallel region pays
// for futex wake-ups. (Measured on 2 cores: an inference of 0.54 ms took 2.3 ms.) Therefore only
// the driver's executor thread has a team. Kernels on other threads (inline on the caller, or on a
// stream's worker) run on one thread. The number of threads is a thread-local setting.
//
// A host thread that also computes on the CPU, for example to initialize a model, has its own team.
// This team is dissolved when that thread later launches parallel kernels (yield_team). The
// thread's next parallel region starts it again, which takes about 50 us.
#ifndef ATEN_LAUNCH_TEAM_H_
#define ATEN_LAUNCH_TEAM_H_

namespace openreg {

// Returns torch.get_num_threads() of the calling thread, which must be the launching thread.
int team_size();

// Dissolves the calling thread's own team, if any; must be called before a parallel launch. Only
// one in eight calls has an effect, so that a program that alternates between CPU work and launches
// does not restart the team's threads each time.
void yield_team();

// Sets the number of threads of kernels on this device thread, from now on.
void set_team(int threads);

// Sets the number of threads of kernels on this host thread, during the lifetime of the object.
class TeamScope {
 public:
  explicit TeamScope(int threads);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int previous_;
  int threads_;
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_TEAM_H_
