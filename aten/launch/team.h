// SPDX-License-Identifier: BSD-3-Clause
//
// Teams: how many threads a kernel may use.
//
// libgomp keeps a team for each thread that ever ran a parallel region, and once all teams together
// have more threads than there are cores it stops spinning: every region then pays futex wake-ups
// (measured on 2 cores: an inference of 0.54 ms took 2.3 ms). So only the driver's executor thread
// has a team; a kernel that runs anywhere else - inline on its caller, or on a stream's worker -
// runs with one thread. Threads: each has its own setting.
//
// A host thread that computes on the CPU too, if only to initialize a model, has a team of its own.
// It is dissolved when that thread goes on to launch parallel kernels (yield_team): the next
// parallel region of the thread itself starts it again, for some 50 us.
#ifndef ATEN_LAUNCH_TEAM_H_
#define ATEN_LAUNCH_TEAM_H_

namespace openreg {

// torch.get_num_threads() of the calling thread, which launches.
int team_size();

// To be called before a parallel launch: dissolves the calling thread's own team, if it has one. It
// does so at one call of eight only: a program that goes back and forth between both kinds of work
// then pays for the threads now and then, not each time.
void yield_team();

// From now on kernels on this thread, one of the device, use `threads` threads.
void set_team(int threads);

// Within its lifetime kernels on this thread, one of the host, use `threads` threads.
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
