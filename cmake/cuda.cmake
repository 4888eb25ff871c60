# The CUDA backend: src/backend/cuda compiled by nvcc into kapitsa_backend. CMake 3.25 knows CUDA standards up to 17 only, so
# the standard is given as a plain option.
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cpp)
if(NOT cuda_sources)
  message(FATAL_ERROR "KAPITSA_CUDA: src/backend/cuda has no sources")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(kapitsa_backend_cuda STATIC ${cuda_sources})
target_compile_options(kapitsa_backend_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --threads 2>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KAPITSA_WERROR}>>:-Werror all-warnings>)
target_compile_definitions(kapitsa_backend_cuda PUBLIC KAPITSA_CUDA=1)
target_include_directories(kapitsa_backend_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kapitsa_backend_cuda PUBLIC kapitsa_plan kapitsa_base CUDA::cudart_static)
target_link_libraries(kapitsa_backend PUBLIC kapitsa_backend_cuda)
