#ifdef __cplusplus
extern "C" {
#endif
double sqrt(double x);
float sqrtf(float x);
float fabsf(float x);
double fma(double x, double y, double z);
float fmaf(float x, float y, float z);
double floor(double x);
double ldexp(double x, int power);
double pow(double x, double y);
double fabs(double x);
double exp(double x);
double log(double x);
#ifdef __cplusplus
}
#endif
