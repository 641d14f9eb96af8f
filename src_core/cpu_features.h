// What this CPU can do and how its cores are arranged. Reports only; dispatch.cpp decides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace intattention {

uint32_t cpu_features();  // bits of CpuFeature
std::vector<std::string> cpu_feature_names(uint32_t features);

// CPUs this process may run on, ascending; empty where the system does not say (macOS).
std::vector<int> allowed_cpus();

// The fastest cluster among allowed_cpus(): by sysfs cpu_capacity, else cpuinfo_max_freq, else all.
std::vector<int> performance_cpus();

// CPUs worth a thread each by default: the size of the fastest cluster.
int default_thread_count();

}  // namespace intattention
