// The pool of calls that do not bring their own.
#pragma once

#include <memory>

#include "thread_pool.h"

namespace intattention::bindings {

// `pool`, or a process-wide default made on first use.
ThreadPool& pool_or_default(ThreadPool* pool);

}  // namespace intattention::bindings
