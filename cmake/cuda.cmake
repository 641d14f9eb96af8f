# The CUDA back end. Machine code for Jetson Orin (sm_87) and Hopper (sm_90), PTX of compute_80 for what lies between:
# Tegra loads no other GPU's machine code, so sm_87 must be named.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "87-real;90-real;80-virtual" CACHE STRING "GPUs to build for")
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "INTATTENTION_CUDA is ON, but there is no CUDA compiler (nvcc 12 or 13); see docs/cuda.md")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
find_package(CUDAToolkit REQUIRED)

file(GLOB cuda_sources CONFIGURE_DEPENDS src_cuda/*.cu src_cuda/*.cpp)
add_library(intattention_cuda STATIC ${cuda_sources})
target_include_directories(intattention_cuda PUBLIC src_cuda)
target_link_libraries(intattention_cuda PUBLIC intattention_core CUDA::cudart_static)
# As on the CPUs: multiply-adds are fused where docs/numerics.md says so and nowhere else.
target_compile_options(
  intattention_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-lineinfo>
                            $<$<COMPILE_LANGUAGE:CXX>:-O3;-ffp-contract=off;-Wall;-Wextra>)
